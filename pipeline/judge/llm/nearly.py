"""Near misses: replies that say one label and nothing else, though not to the letter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

_FENCE = re.compile(r"```[\w-]*\s(.*)```", re.S)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "„": "“", "«": "»"}
_END_MARKS = (".", "!", "。", "！")
_END_OF_THOUGHTS = "</think>"


def answer(reply: str) -> str:
    """What a reply says after the thoughts that it begins with, and without the code fence around it."""
    said = reply[thoughts_in(reply) :].strip()
    fenced = _FENCE.fullmatch(said) if said.startswith("```") else None
    return fenced[1].strip() if fenced else said


def thoughts_in(reply: str) -> int:
    """Characters of the thoughts that a reply begins with; where the prompt opens them, the reply only ends them."""
    thoughts, end, _ = reply.partition(_END_OF_THOUGHTS)
    opened = thoughts.lstrip().startswith("<think>")
    return len(thoughts + end) if end and (opened or not thoughts.lstrip().startswith(("{", "```"))) else 0


def label(said: object, labels: Sequence[str]) -> str | None:
    """The label that is said, but for case, a mark that ends a sentence, and quotes; None where it is none or two."""
    folded = fold(labels)
    names = {folded(one): one for one in labels}
    text = str(said) if type(said) is int else said
    return (
        next((names[near] for near in map(folded, _near(text)) if near in names), None)
        if isinstance(text, str)
        else None
    )


def fold(labels: Sequence[str]) -> Callable[[str], str]:
    """Takes the case from a text, unless the case is what tells labels apart."""
    return _fold(tuple(labels))


@lru_cache
def _fold(labels: tuple[str, ...]) -> Callable[[str], str]:
    return str.casefold if len({one.casefold() for one in labels}) == len(labels) else str


def _near(text: str) -> Iterator[str]:
    """The text, and what remains of it, step by step."""
    yield (said := text.strip())
    for step in (_unended, _unquoted, _unended):
        yield (said := step(said))


def _unended(said: str) -> str:
    return said[:-1].rstrip() if said.endswith(_END_MARKS) else said


def _unquoted(said: str) -> str:
    return said[1:-1].strip() if len(said) > 1 and _QUOTES.get(said[0]) == said[-1] else said
