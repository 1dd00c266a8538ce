"""Lenient parsing of replies that are one label, apart from case, quotes, punctuation, code fences and reasoning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

_FENCE = re.compile(r"```[\w-]*\s(.*)```", re.S)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "„": "“", "«": "»"}
_END_MARKS = (".", "!", "。", "！")
_END_OF_THOUGHTS = "</think>"


def find_answer(reply: str) -> str:
    """Return the reply without leading reasoning and without a code fence."""
    reply_text = reply[thoughts_in(reply) :].strip()
    fenced = _FENCE.fullmatch(reply_text) if reply_text.startswith("```") else None
    return fenced[1].strip() if fenced else reply_text


def thoughts_in(reply: str) -> int:
    """Count the characters of reasoning at the start of a reply, with its tags.

    If the prompt opened the reasoning, the reply contains only the end tag.
    """
    reasoning, end_tag, _ = reply.partition(_END_OF_THOUGHTS)
    has_start_tag = reasoning.lstrip().startswith("<think>")
    return (
        len(reasoning + end_tag)
        if end_tag and (has_start_tag or not reasoning.lstrip().startswith(("{", "```")))
        else 0
    )


def find_label(value: object, labels: Sequence[str]) -> str | None:
    """Read the label of a reply, ignoring case, quotes and a final punctuation mark; None if it is not exactly one
    label.
    """
    fold_case = fold(labels)
    label_by_folded = {fold_case(label_name): label_name for label_name in labels}
    text = str(value) if type(value) is int else value
    if not isinstance(text, str):
        return None
    candidates = map(fold_case, _variants(text))
    return next((label_by_folded[candidate] for candidate in candidates if candidate in label_by_folded), None)


def fold(labels: Sequence[str]) -> Callable[[str], str]:
    """Return the function for comparing labels: case folding, or identity if labels differ only in case."""
    return _fold(tuple(labels))


@lru_cache
def _fold(labels: tuple[str, ...]) -> Callable[[str], str]:
    return str.casefold if len({label_name.casefold() for label_name in labels}) == len(labels) else str


def _variants(text: str) -> Iterator[str]:
    """Yield the text, stripped step by step of punctuation and quotes."""
    yield (stripped := text.strip())
    for step in (_strip_end, _strip_quotes, _strip_end):
        yield (stripped := step(stripped))


def _strip_end(text: str) -> str:
    return text[:-1].rstrip() if text.endswith(_END_MARKS) else text


def _strip_quotes(text: str) -> str:
    return text[1:-1].strip() if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] else text
