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

# They bound parsing time, and MAX_DEPTH keeps the recursive YAML parser in C from overflowing its stack, which would
# end the process.
MAX_CHARACTERS = 65_536
MAX_DEPTH = 20

# The first rule of front matter: `---` (YAML, or the language named after it), `+++` (TOML) or `;;;` (JSON).
_OPENING_RULE = re.compile(
    r"\s*^(?:(?P<rule>-{3,})(?P<language>[A-Za-z]*)|(?P<plus>\+{3})|(?P<semicolon>;{3}))[ \t]*\n", re.M
)
# Closing rules by the first character of the opening rule; YAML may also end with `...`.
_CLOSING_RULES = {
    "-": re.compile(r"^(?:-{3,}|\.{3})[ \t]*$", re.M),
    "+": re.compile(r"^\+{3}[ \t]*$", re.M),
    ";": re.compile(r"^;{3}[ \t]*$", re.M),
}
# First lines that show that front matter is intended: `key:` in YAML, `key =` or `[table]` in TOML, `"key":` in JSON.
_FIRST_KEY = {
    "yaml": re.compile(r"\s*[\"']?[A-Za-z_][\w -]*[\"']?:(?:\s|$)"),
    "toml": re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:\[|[\"']?\w[\w.\"' -]*=)"),
    "json": re.compile(r"\s*\{?\s*\"[^\"\n]*\"\s*:"),
}
# Beginning of front matter that is a JSON object without rules around it.
_JSON_OBJECT_START = re.compile(r"\s*(?=\{\s*\"[^\"\n]*\"\s*:)")
# A dotted TOML key (`a.b.c`) with more than MAX_DEPTH parts. Possessive quantifiers keep the search linear.
_DEEP_DOTTED_KEY = re.compile(rf"(?<![\w\"'-])[\w\"'-]++(?:[ \t]*+\.[ \t]*+[\w\"'-]++){{{MAX_DEPTH}}}")
_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")
# YAML's spellings of an empty value; the base loader returns them as text.
_EMPTY_VALUES = {"", "~", "null", "Null", "NULL"}
_START_EVENTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_END_EVENTS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)

Head = dict[str, str | None]
"""Front matter: values by key, as written; None for empty values, lists and mappings."""


class BadHeadError(Exception):
    """Front matter that the author evidently intended but that cannot be parsed; the message is the reject reason."""


def front_matter(text: str) -> tuple[Head, str]:
    """Separate front matter from the text after it.

    Front matter is YAML between `---`, TOML between `+++`, or JSON between `;;;` or as an object in braces.

    A language may follow the first rule (`---toml`). Content between rules that is not a mapping is ordinary text.
    Values are texts as written; TOML integers and dates are converted to decimal and ISO 8601 texts.

    Returns:
        The values and the remaining text; no values and the whole text if there is no front matter.

    Raises:
        BadHeadError: front matter that begins with a key is not closed, too long, nested too deeply, invalid, repeats
            a key, is a list of mappings, or is in another language.
    """
    opening = _OPENING_RULE.match(text)
    if not opening:
        return _split_json_object(text)
    rule_character = opening[0].strip()[0]
    closing = _CLOSING_RULES[rule_character].search(text, opening.end())
    language = _language_of(opening)
    if language not in _PARSERS:
        if closing:
            raise BadHeadError(f"front matter in {language} cannot be read")
        return {}, text
    is_intended = _FIRST_KEY[language].match(text, opening.end()) is not None
    if not closing:
        if is_intended:
            raise BadHeadError("front matter is never closed")
        return {}, text
    matter = text[opening.end() : closing.start()]
    if len(matter) > MAX_CHARACTERS:
        if is_intended:
            raise BadHeadError(f"front matter is longer than {MAX_CHARACTERS} characters")
        return {}, text
    values = _parse(language, matter, is_intended=is_intended)
    if isinstance(values, list) and any(isinstance(value, dict) for value in values):
        raise BadHeadError("front matter is a list")
    if not isinstance(values, dict | None):
        return {}, text
    return _texts_by_key(values or {}), text[closing.end() :].strip()


def _language_of(opening: re.Match[str]) -> str:
    """Language of the front matter after an opening rule: `yaml`, `toml`, `json` or another name in lower case."""
    if opening["plus"] or opening["semicolon"]:
        return "toml" if opening["plus"] else "json"
    language = opening["language"].lower()
    return {"": "yaml", "yml": "yaml"}.get(language, language)


def _split_json_object(text: str) -> tuple[Head, str]:
    """Separate a JSON object at the beginning from the text after it.

    The object must be followed by the end of a line; otherwise it is part of the text.
    """
    start = _JSON_OBJECT_START.match(text)
    if not start:
        return {}, text
    piece = text[start.end() : start.end() + MAX_CHARACTERS]
    try:
        values, end = _JSON_DECODER.raw_decode(piece)
    except RecursionError as error:
        raise BadHeadError("front matter is nested too deeply") from error
    except ValueError as error:
        if len(text) - start.end() > MAX_CHARACTERS:
            raise BadHeadError(f"front matter is longer than {MAX_CHARACTERS} characters") from error
        raise BadHeadError("broken front matter") from error
    if not _LINE_END.match(piece, end):
        return {}, text
    return _texts_by_key(values), text[start.end() + end :].strip()


def _texts_by_key(values: dict[Any, Any]) -> Head:
    """Convert parsed values to texts."""
    return {str(key): _scalar_text(value) for key, value in values.items()}


def _scalar_text(value: object) -> str | None:
    """A scalar as text; None for empty values, lists and mappings."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    return str(value) if isinstance(value, str | int) and value not in _EMPTY_VALUES else None


def _parse(language: str, matter: str, *, is_intended: bool) -> Any:
    """Parse the text between the rules; the caller treats a result that is not a mapping as ordinary text.

    Args:
        language: a key of _PARSERS.
        matter: text between the rules.
        is_intended: whether the first line looks like a key, so that the author evidently wrote front matter.

    Returns:
        Parsed values; None for nothing; `matter` itself if it is invalid JSON or TOML and not intended.

    Raises:
        BadHeadError: the text is nested too deeply, or invalid although intended. Invalid YAML always raises.
    """
    try:
        return _PARSERS[language](matter)
    except RecursionError as error:
        raise BadHeadError("front matter is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        if language == "yaml" or is_intended:
            raise BadHeadError("broken front matter") from error
        return None if not matter.strip() else matter


def _parse_yaml(matter: str) -> Any:
    """Parse YAML with the base loader: texts, lists and mappings only; no dates, numbers or merge keys."""
    _check_depth(matter)
    loader = yaml.CBaseLoader(matter)
    node = loader.get_single_node()
    if isinstance(node, yaml.MappingNode):
        _check_keys(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    return None if node is None else loader.construct_document(node)


def _parse_toml(matter: str) -> Any:
    """Parse TOML; floats stay texts as written."""
    if _DEEP_DOTTED_KEY.search(matter):  # tomllib takes quadratic time for dotted keys
        raise BadHeadError("front matter is nested too deeply")
    return tomllib.loads(matter, parse_float=str)


def _parse_json(matter: str) -> Any:
    """Parse a JSON object; its braces may be missing between rules, and a last comma is then ignored."""
    text = matter.strip()
    return _JSON_DECODER.decode(text if text.startswith("{") else f"{{{text.removesuffix(',')}}}")


_PARSERS: dict[str, Callable[[str], Any]] = {"yaml": _parse_yaml, "toml": _parse_toml, "json": _parse_json}


def _dict_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; raises BadHeadError if it repeats a key, where `dict` would keep the last value."""
    _check_keys(key for key, _ in pairs)
    return dict(pairs)


# Numbers stay texts as written (1.10 is not 1.1), and int() would raise for more than 4,300 digits.
_JSON_DECODER = json.JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_dict_of_unique_keys
)


def _check_keys(keys: Iterable[str]) -> None:
    """Raise BadHeadError if a key is repeated: it would be unclear which value, such as the tenant, is valid."""
    seen_keys: set[str] = set()
    for key in keys:
        if key in seen_keys:
            raise BadHeadError("front matter repeats a key")
        seen_keys.add(key)


def _check_depth(matter: str) -> None:
    """Raise BadHeadError above MAX_DEPTH. Counts parser events: the loader recurses in C and could end the process."""
    depth = 0
    for event in yaml.parse(matter, yaml.CBaseLoader):
        depth += isinstance(event, _START_EVENTS) - isinstance(event, _END_EVENTS)
        if depth > MAX_DEPTH:
            raise BadHeadError("front matter is nested too deeply")
