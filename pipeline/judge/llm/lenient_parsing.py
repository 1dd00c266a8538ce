"""Near misses: replies that say one label and nothing else, though not to the letter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

_FENCE = re.compile(r"```[\w-]*\s(.*)```", re.S)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "„": "“", "«": "»"}
_END_MARKS = (".", "!", "。", "！")
_END_OF_THOUGHTS = "</think>"


def find_answer(reply: str) -> str:
    """What a reply says after the thoughts that it begins with, and without the code fence around it."""
    reply_text = reply[thoughts_in(reply) :].strip()
    fenced = _FENCE.fullmatch(reply_text) if reply_text.startswith("```") else None
    return fenced[1].strip() if fenced else reply_text


def thoughts_in(reply: str) -> int:
    """Characters of the thoughts that a reply begins with; where the prompt opens them, the reply only ends them."""
    thoughts, end, _ = reply.partition(_END_OF_THOUGHTS)
    opened = thoughts.lstrip().startswith("<think>")
    return len(thoughts + end) if end and (opened or not thoughts.lstrip().startswith(("{", "```"))) else 0


def find_label(value: object, labels: Sequence[str]) -> str | None:
    """The label that is said, but for case, a mark that ends a sentence, and quotes; None where it is none or two."""
    folded = fold(labels)
    names = {folded(label_name): label_name for label_name in labels}
    text = str(value) if type(value) is int else value
    return (
        next((names[candidate] for candidate in map(folded, _variants(text)) if candidate in names), None)
        if isinstance(text, str)
        else None
    )


def fold(labels: Sequence[str]) -> Callable[[str], str]:
    """Takes the case from a text, unless the case is what tells labels apart."""
    return _fold(tuple(labels))


@lru_cache
def _fold(labels: tuple[str, ...]) -> Callable[[str], str]:
    return str.casefold if len({label_name.casefold() for label_name in labels}) == len(labels) else str


def _variants(text: str) -> Iterator[str]:
    """The text, and what remains of it, step by step."""
    yield (stripped := text.strip())
    for step in (_strip_end, _strip_quotes, _strip_end):
        yield (stripped := step(stripped))


def _strip_end(text: str) -> str:
    return text[:-1].rstrip() if text.endswith(_END_MARKS) else text


def _strip_quotes(text: str) -> str:
    return text[1:-1].strip() if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] else text
