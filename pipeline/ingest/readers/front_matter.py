"""Front matter: YAML, TOML or JSON at the top of a Markdown or HTML file, read in time that grows with its length."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from datetime import date, time
from typing import Any

import yaml

MOST_CHARACTERS = 65_536
MOST_DEPTH = 20

_OPENING = re.compile(
    r"\s*^(?:(?P<rule>-{3,})(?P<language>[A-Za-z]*)|(?P<plus>\+{3})|(?P<semicolon>;{3}))[ \t]*\n", re.M
)
_CLOSINGS = {
    "-": re.compile(r"^(?:-{3,}|\.{3})[ \t]*$", re.M),
    "+": re.compile(r"^\+{3}[ \t]*$", re.M),
    ";": re.compile(r"^;{3}[ \t]*$", re.M),
}
# A first line that no text begins with: `key:` in YAML, `key =` or `[table]` in TOML, `"key":` in JSON.
_MEANT = {
    "yaml": re.compile(r"\s*[\"']?[A-Za-z_][\w -]*[\"']?:(?:\s|$)"),
    "toml": re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:\[|[\"']?\w[\w.\"' -]*=)"),
    "json": re.compile(r"\s*\{?\s*\"[^\"\n]*\"\s*:"),
}
_JSON_OBJECT = re.compile(r"\s*(?=\{\s*\"[^\"\n]*\"\s*:)")
_DOTTED = re.compile(rf"(?<![\w\"'-])[\w\"'-]++(?:[ \t]*+\.[ \t]*+[\w\"'-]++){{{MOST_DEPTH}}}")
_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")
_NOTHING = {"", "~", "null", "Null", "NULL"}
_NESTED = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_LEFT = (yaml.MappingEndEvent, yaml.SequenceEndEvent)

Head = dict[str, str | None]
"""Values by key as they are written; null where a key has none, or one that is no plain value."""


class BadHeadError(Exception):
    """Front matter that looks meant and cannot be read; the message is the reason."""


def front_matter(text: str) -> tuple[Head, str]:
    """Split front matter off: YAML between `---`, TOML between `+++`, JSON between `;;;` or as an object in braces.

    A language may follow the first rule (`---toml`). What stands between two rules and is no mapping is text like any
    other. Every value is text as it is written; TOML's whole numbers and dates are written in their usual form.

    Raises:
        BadHeadError: a head that begins with a key is not closed, too long or nested too deeply, cannot be parsed,
            repeats a key, is a list with keys in it, or is in another language.
    """
    opening = _OPENING.match(text)
    if not opening:
        return _json_object(text)
    sign = opening[0].strip()[0]
    closing = _CLOSINGS[sign].search(text, opening.end())
    language = _language(opening)
    if language not in _LOADERS:
        if closing:
            raise BadHeadError(f"front matter in {language} cannot be read")
        return {}, text
    meant = _MEANT[language].match(text, opening.end()) is not None
    if not closing:
        if meant:
            raise BadHeadError("front matter is never closed")
        return {}, text
    matter = text[opening.end() : closing.start()]
    if len(matter) > MOST_CHARACTERS:
        if meant:
            raise BadHeadError(f"front matter is longer than {MOST_CHARACTERS} characters")
        return {}, text
    values = _load(language, matter, meant=meant)
    if isinstance(values, list) and any(isinstance(value, dict) for value in values):
        raise BadHeadError("front matter is a list")
    if not isinstance(values, dict | None):
        return {}, text
    return _head(values or {}), text[closing.end() :].strip()


def _language(opening: re.Match[str]) -> str:
    if opening["plus"] or opening["semicolon"]:
        return "toml" if opening["plus"] else "json"
    language = opening["language"].lower()
    return {"": "yaml", "yml": "yaml"}.get(language, language)


def _json_object(text: str) -> tuple[Head, str]:
    """Split off an object that the text begins with and that ends a line."""
    start = _JSON_OBJECT.match(text)
    if not start:
        return {}, text
    piece = text[start.end() : start.end() + MOST_CHARACTERS]
    try:
        values, end = _JSON.raw_decode(piece)
    except RecursionError as error:
        raise BadHeadError("front matter is nested too deeply") from error
    except ValueError as error:
        if len(text) - start.end() > MOST_CHARACTERS:
            raise BadHeadError(f"front matter is longer than {MOST_CHARACTERS} characters") from error
        raise BadHeadError("broken front matter") from error
    if not _LINE_END.match(piece, end):
        return {}, text
    return _head(values), text[start.end() + end :].strip()


def _head(values: dict[Any, Any]) -> Head:
    return {str(key): _plain(value) for key, value in values.items()}


def _plain(value: object) -> str | None:
    """A value as text; None where it is none or no plain one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    return str(value) if isinstance(value, str | int) and value not in _NOTHING else None


def _load(language: str, matter: str, *, meant: bool) -> Any:
    try:
        return _LOADERS[language](matter)
    except RecursionError as error:
        raise BadHeadError("front matter is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        if language == "yaml" or meant:
            raise BadHeadError("broken front matter") from error
        return None if not matter.strip() else matter


def _yaml(matter: str) -> Any:
    """Texts, lists and mappings, nothing else: no dates, no numbers, no merged keys."""
    _check_depth(matter)
    loader = yaml.CBaseLoader(matter)
    node = loader.get_single_node()
    if isinstance(node, yaml.MappingNode):
        _check_keys(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    return None if node is None else loader.construct_document(node)


def _toml(matter: str) -> Any:
    if _DOTTED.search(matter):  # the time for these grows with the square of their number
        raise BadHeadError("front matter is nested too deeply")
    return tomllib.loads(matter, parse_float=str)


def _json(matter: str) -> Any:
    text = matter.strip()
    return _JSON.decode(text if text.startswith("{") else f"{{{text.removesuffix(',')}}}")


_LOADERS: dict[str, Callable[[str], Any]] = {"yaml": _yaml, "toml": _toml, "json": _json}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_keys(key for key, _ in pairs)
    return dict(pairs)


_JSON = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_unique)


def _check_keys(keys: Iterable[str]) -> None:
    """Of two values of one key, such as two tenants, none is the right one."""
    seen_keys: set[str] = set()
    for key in keys:
        if key in seen_keys:
            raise BadHeadError("front matter repeats a key")
        seen_keys.add(key)


def _check_depth(matter: str) -> None:
    """Nested mappings are built by recursion in C, which ends the process; events come one after another."""
    depth = 0
    for event in yaml.parse(matter, yaml.CBaseLoader):
        depth += isinstance(event, _NESTED) - isinstance(event, _LEFT)
        if depth > MOST_DEPTH:
            raise BadHeadError("front matter is nested too deeply")
