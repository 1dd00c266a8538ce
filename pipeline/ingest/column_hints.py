"""Guess the column of a role if none has a usual name, and format the option that sets it."""

import difflib
import re
import shlex
from collections.abc import Collection, Sequence
from itertools import islice

import yaml

ROLE_WORDS = {
    "text": "text query term terms keyword keywords question phrase body content description passage article q",
    "query": "query term terms keyword keywords question phrase text q",
    "timestamp": "timestamp time date datetime ts created at when day",
    "clicked": "clicked click clicks is selected opened",
    "doc_id": "doc document object item product page url id sku",
    "position": "position rank ordinal pos place",
    "document": "document doc passage text",
}
"""Words in column names of a role, likeliest first; other roles use the words of their usual names."""

ID_WORDS = {"id", "ids", "uuid", "key", "guid"}
"""Columns with such a word in their name contain ids, not text."""

MIN_SIMILARITY = 0.75
"""Minimum `SequenceMatcher` ratio of a column name and a word; a lower one makes more and worse guesses."""
MAX_COLUMNS, MAX_NAME_CHARACTERS = 500, 64
"""Bounds on the columns and name lengths considered: tables made by hand are smaller."""
_CAMEL_CASE_BORDER, _WORD_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])"), re.compile(r"[\W_]+")


def guess_column(role: str, usual: Sequence[str], present: Collection[str]) -> str | None:
    """The likeliest column of a role by its name; None if no name is similar enough.

    Args:
        role: for example `text`.
        usual: the usual names of the role.
        present: columns of the source.
    """
    words = ROLE_WORDS[role].split() if role in ROLE_WORDS else [word for name in usual for word in split_words(name)]
    names = islice(dict.fromkeys(present), MAX_COLUMNS)
    rated = [(_rating(role, name, words), -position, name) for position, name in enumerate(names)]
    best_rated = max(rated, default=None)
    return best_rated[2] if best_rated and best_rated[0] > 0 else None


def _rating(role: str, name: str, words: Sequence[str]) -> float:
    """Score of a column name; earlier words of the list score higher."""
    if len(name) > MAX_NAME_CHARACTERS:
        return 0.0
    name_words = split_words(name)
    if role in {"text", "query"} and ID_WORDS & set(name_words):
        return 0.0
    hits = [1.0 - words.index(word) / (2 * len(words)) for word in name_words if word in words]
    if hits:
        return max(hits) + 0.1 * (len(hits) - 1)
    ratios = [difflib.SequenceMatcher(None, name.lower(), word).ratio() for word in words if len(word) > 3]
    best_ratio = max(ratios, default=0.0)
    return best_ratio / 2 if best_ratio >= MIN_SIMILARITY else 0.0


def split_words(name: str) -> list[str]:
    """Split a name into lower-case words: search_term, searchTerm and `search term` give the same."""
    return [word.lower() for word in _WORD_BORDER.split(_CAMEL_CASE_BORDER.sub("_", name)) if word]


def hint(typed: str, guess: str | None) -> str:
    """The advice for an option: a question if its value is a guess."""
    return f"is it {typed}?" if guess else f"set {typed}"


def option(section: str, role: str, name: str | None) -> str:
    """The command line option that sets a column; `NAME` if the column is unknown."""
    value = "NAME" if name is None else name
    text = value if _is_plain_yaml(value) and "\n" not in value else yaml.safe_dump(value).strip()
    return f"--set {shlex.quote(f'{section}.{role}={text}')}"


def _is_plain_yaml(value: str) -> bool:
    """Whether YAML parses a text as the same string."""
    try:
        return bool(yaml.safe_load(value) == value)
    except yaml.YAMLError:
        return False
