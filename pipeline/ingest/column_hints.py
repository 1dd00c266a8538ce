"""Which column is meant where none has a usual name, and the option that says so, finished."""

import difflib
import re
import shlex
from collections.abc import Collection, Sequence
from itertools import islice

import yaml

WORDS = {
    "text": "text query term terms keyword keywords question phrase body content description passage article q",
    "query": "query term terms keyword keywords question phrase text q",
    "timestamp": "timestamp time date datetime ts created at when day",
    "clicked": "clicked click clicks is selected opened",
    "doc_id": "doc document object item product page url id sku",
    "position": "position rank ordinal pos place",
    "document": "document doc passage text",
}
"""Words that names of the columns of a role are made of, the likeliest first; other roles have those of usual names."""

IDS = {"id", "ids", "uuid", "key", "guid"}
"""What a column that is named so holds is no text."""

NEAR = 0.75
MOST_COLUMNS, LONGEST_NAME = 500, 64
"""What has more columns, or longer names, is no table that somebody made by hand: only so much of it is looked at."""
_CAMEL, _BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])"), re.compile(r"[\W_]+")


def likeliest_column(role: str, usual: Sequence[str], present: Collection[str]) -> str | None:
    """The column that most likely plays a role, by its name alone; None where none speaks for itself.

    Args:
        role: such as `text`.
        usual: the names that are found without being named.
        present: the source's columns.
    """
    words = WORDS[role].split() if role in WORDS else [word for name in usual for word in parts(name)]
    names = islice(dict.fromkeys(present), MOST_COLUMNS)
    rated = [(_rating(role, name, words), -position, name) for position, name in enumerate(names)]
    best_rated = max(rated, default=None)
    return best_rated[2] if best_rated and best_rated[0] > 0 else None


def _rating(role: str, name: str, words: Sequence[str]) -> float:
    """How well a name fits; a word counts more the earlier it stands in the list."""
    if len(name) > LONGEST_NAME:
        return 0.0
    own = parts(name)
    if role in {"text", "query"} and IDS & set(own):
        return 0.0
    hits = [1.0 - words.index(word) / (2 * len(words)) for word in own if word in words]
    if hits:
        return max(hits) + 0.1 * (len(hits) - 1)
    ratios = [difflib.SequenceMatcher(None, name.lower(), word).ratio() for word in words if len(word) > 3]
    best_ratio = max(ratios, default=0.0)
    return best_ratio / 2 if best_ratio >= NEAR else 0.0


def parts(name: str) -> list[str]:
    """The words that a name is made of: search_term, searchTerm and `search term` alike."""
    return [word.lower() for word in _BORDER.split(_CAMEL.sub("_", name)) if word]


def hint(typed: str, guess: str | None) -> str:
    """What to say of an option: a question where its value is a guess."""
    return f"is it {typed}?" if guess else f"say {typed}"


def option(section: str, role: str, name: str | None) -> str:
    """The option that names a column, as it is to be typed; `NAME` where it is not known."""
    value = "NAME" if name is None else name
    text = value if _plain(value) and "\n" not in value else yaml.safe_dump(value).strip()
    return f"--set {shlex.quote(f'{section}.{role}={text}')}"


def _plain(value: str) -> bool:
    """Whether YAML reads a text as itself."""
    try:
        return bool(yaml.safe_load(value) == value)
    except yaml.YAMLError:
        return False
