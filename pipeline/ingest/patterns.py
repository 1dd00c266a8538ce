"""Paths with patterns, such as `logs/2026-*/events*.parquet`."""

import re

_MAGIC = re.compile(r"[*?\[]")
_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]/]+\]|.", re.DOTALL)
_TRANSLATIONS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def split_pattern(path: str) -> tuple[str, re.Pattern[str]] | None:
    """The folder before the first pattern, and an expression for the names below it; None without a pattern.

    `*` and `?` match within a name, `**` across folders, `[a-z]` and `[!a-z]` one character. A folder that matches
    stands for all files below it.
    """
    scheme, separator, place = path.rpartition("://")
    parts = place.split("/")
    first = next((number for number, part in enumerate(parts) if _MAGIC.search(part)), None)
    if first is None:
        return None
    root = "/".join(parts[:first])
    if not root:
        root = "/" if first else "."
    expression = "".join(map(_translate, _TOKENS.findall("/".join(parts[first:]).rstrip("/"))))
    return f"{scheme}{separator}{root}", re.compile(f"{expression}(?:/.*)?", re.DOTALL)


def _translate(token: str) -> str:
    if len(token) > 2 and token.startswith("["):
        members = token[1:-1].removeprefix("!").replace("\\", r"\\").replace("^", r"\^").replace("[", r"\[")
        expression = f"[^/{members}]" if token[1] == "!" else f"[{members}]"
        try:
            re.compile(expression)
        except re.error:  # [z-a]: characters like others
            return re.escape(token)
        return expression
    return _TRANSLATIONS.get(token) or re.escape(token)
