"""Front matter: YAML, TOML or JSON at the top of a Markdown or HTML file, parsed in linear time.

Not python-frontmatter: it parses without bounds. 100,000 nested maps end the process with a segmentation fault, YAML
merge keys take exponential time, and integers of 5,000 digits raise. Here length and depth are bounded before parsing.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from datetime import date, time
from typing import Any

import yaml

MAX_CHARACTERS = 65_536
MAX_DEPTH = 20

_OPENING = re.compile(
    r"\s*^(?:(?P<rule>-{3,})(?P<language>[A-Za-z]*)|(?P<plus>\+{3})|(?P<semicolon>;{3}))[ \t]*\n", re.M
)
_CLOSINGS = {
    "-": re.compile(r"^(?:-{3,}|\.{3})[ \t]*$", re.M),
    "+": re.compile(r"^\+{3}[ \t]*$", re.M),
    ";": re.compile(r"^;{3}[ \t]*$", re.M),
}
# First lines that show that front matter is intended: `key:` in YAML, `key =` or `[table]` in TOML, `"key":` in JSON.
_INTENDED = {
    "yaml": re.compile(r"\s*[\"']?[A-Za-z_][\w -]*[\"']?:(?:\s|$)"),
    "toml": re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:\[|[\"']?\w[\w.\"' -]*=)"),
    "json": re.compile(r"\s*\{?\s*\"[^\"\n]*\"\s*:"),
}
_JSON_OBJECT = re.compile(r"\s*(?=\{\s*\"[^\"\n]*\"\s*:)")
_DOTTED = re.compile(rf"(?<![\w\"'-])[\w\"'-]++(?:[ \t]*+\.[ \t]*+[\w\"'-]++){{{MAX_DEPTH}}}")
_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")
_NOTHING = {"", "~", "null", "Null", "NULL"}
_NESTED = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSED = (yaml.MappingEndEvent, yaml.SequenceEndEvent)

Head = dict[str, str | None]
"""Values by key, as written; None for empty and for structured values."""


class BadHeadError(Exception):
    """Intended front matter that cannot be parsed; the message is the reject reason."""


def front_matter(text: str) -> tuple[Head, str]:
    """Split off front matter: YAML between `---`, TOML between `+++`, JSON between `;;;` or as an object in braces.

    A language may follow the first rule (`---toml`). Content between rules that is not a mapping is ordinary text.
    Values are texts as written; TOML integers and dates are written in their usual form.

    Raises:
        BadHeadError: front matter that begins with a key is not closed, too long, nested too deeply, invalid, repeats
            a key, is a list of mappings, or is in another language.
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
    is_intended = _INTENDED[language].match(text, opening.end()) is not None
    if not closing:
        if is_intended:
            raise BadHeadError("front matter is never closed")
        return {}, text
    matter = text[opening.end() : closing.start()]
    if len(matter) > MAX_CHARACTERS:
        if is_intended:
            raise BadHeadError(f"front matter is longer than {MAX_CHARACTERS} characters")
        return {}, text
    values = _load(language, matter, is_intended=is_intended)
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
    """Split off a JSON object at the beginning of the text that ends with a line."""
    start = _JSON_OBJECT.match(text)
    if not start:
        return {}, text
    piece = text[start.end() : start.end() + MAX_CHARACTERS]
    try:
        values, end = _JSON.raw_decode(piece)
    except RecursionError as error:
        raise BadHeadError("front matter is nested too deeply") from error
    except ValueError as error:
        if len(text) - start.end() > MAX_CHARACTERS:
            raise BadHeadError(f"front matter is longer than {MAX_CHARACTERS} characters") from error
        raise BadHeadError("broken front matter") from error
    if not _LINE_END.match(piece, end):
        return {}, text
    return _head(values), text[start.end() + end :].strip()


def _head(values: dict[Any, Any]) -> Head:
    return {str(key): _scalar_text(value) for key, value in values.items()}


def _scalar_text(value: object) -> str | None:
    """A scalar as text; None for empty and structured values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    return str(value) if isinstance(value, str | int) and value not in _NOTHING else None


def _load(language: str, matter: str, *, is_intended: bool) -> Any:
    try:
        return _LOADERS[language](matter)
    except RecursionError as error:
        raise BadHeadError("front matter is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        if language == "yaml" or is_intended:
            raise BadHeadError("broken front matter") from error
        return None if not matter.strip() else matter


def _yaml(matter: str) -> Any:
    """Parse YAML with the base loader: texts, lists and mappings only; no dates, numbers or merge keys."""
    _check_depth(matter)
    loader = yaml.CBaseLoader(matter)
    node = loader.get_single_node()
    if isinstance(node, yaml.MappingNode):
        _check_keys(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    return None if node is None else loader.construct_document(node)


def _toml(matter: str) -> Any:
    if _DOTTED.search(matter):  # tomllib takes quadratic time for dotted keys
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
    """Raise if a key is repeated: it would be unclear which value, such as the tenant, is valid."""
    seen_keys: set[str] = set()
    for key in keys:
        if key in seen_keys:
            raise BadHeadError("front matter repeats a key")
        seen_keys.add(key)


def _check_depth(matter: str) -> None:
    """Check the depth by parser events: the loader recurses in C and would end the process."""
    depth = 0
    for event in yaml.parse(matter, yaml.CBaseLoader):
        depth += isinstance(event, _NESTED) - isinstance(event, _CLOSED)
        if depth > MAX_DEPTH:
            raise BadHeadError("front matter is nested too deeply")
