"""Front matter: the YAML between two rules at the top of a Markdown file, read in time that grows with its length."""

import re
from typing import Any

import yaml

MOST_CHARACTERS = 65_536
MOST_DEPTH = 20

_OPENING = re.compile(r"\s*^-{3,}[ \t]*\n", re.M)
_CLOSING = re.compile(r"^-{3,}[ \t]*$", re.M)
_MEANT = re.compile(r"\s*[A-Za-z_][\w -]*:(?:\s|$)")
_NOTHING = {"", "~", "null", "Null", "NULL"}
_NESTED = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_LEFT = (yaml.MappingEndEvent, yaml.SequenceEndEvent)

Head = dict[str, str | None]
"""Values by key as they are written; null where a key has none, or one that is no plain value."""


class BadHeadError(Exception):
    """Front matter that looks meant and cannot be read; the message is the reason."""


def front_matter(text: str) -> tuple[Head, str]:
    """Split front matter off. What stands between two rules and is no mapping is text like any other.

    Every value is text: no dates, no numbers, no merged keys.

    Raises:
        BadHeadError: a head that begins with a key is not closed, too long or nested too deeply, or is no YAML, or is a
            list with keys in it.
    """
    opening = _OPENING.match(text)
    if not opening:
        return {}, text
    closing = _CLOSING.search(text, opening.end())
    if not closing:
        if _MEANT.match(text, opening.end()):
            raise BadHeadError("front matter is never closed")
        return {}, text
    values = _loaded(text[opening.end() : closing.start()])
    if isinstance(values, list) and any(isinstance(value, dict) for value in values):
        raise BadHeadError("front matter is a list")
    if not isinstance(values, dict | None):
        return {}, text
    return {str(key): _plain(value) for key, value in (values or {}).items()}, text[closing.end() :].strip()


def _plain(value: object) -> str | None:
    return value if isinstance(value, str) and value not in _NOTHING else None


def _loaded(matter: str) -> Any:
    if len(matter) > MOST_CHARACTERS:
        if _MEANT.match(matter):
            raise BadHeadError(f"front matter is longer than {MOST_CHARACTERS} characters")
        return matter
    try:
        _check_depth(matter)
        return yaml.CBaseLoader(matter).get_single_data()  # texts, lists and mappings, nothing else
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BadHeadError("broken front matter") from error


def _check_depth(matter: str) -> None:
    """Nested mappings are built by recursion in C, which ends the process; events come one after another."""
    depth = 0
    for event in yaml.parse(matter, yaml.CBaseLoader):
        depth += isinstance(event, _NESTED) - isinstance(event, _LEFT)
        if depth > MOST_DEPTH:
            raise BadHeadError("front matter is nested too deeply")
