"""From the log-probabilities of a reply's tokens to the probabilities of labels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from darklode.pipeline.judge.llm import lenient_parsing

Tokens = Sequence[Mapping[str, Any]]
"""`logprobs.content` of a chat completion, or some of it: texts, log-probabilities, alternatives."""

_KEPT_BEGINNINGS = 1 << 12

_MAX_SUM = 1.01
"""Probabilities of one token's alternatives may sum to this: servers round."""

_CONTROL = re.compile(r"\s*|<[^<>\s]+>|\[[^\[\]\s]+\]")
"""What may follow the content: the token that ends the reply, as <|im_end|>."""


NOT_GIVEN = "the server gave no log-probabilities"
NOT_FOUND = "the label's tokens are not among those with log-probabilities"
NO_ALTERNATIVES = "the server gave log-probabilities of the written tokens only"
IMPOSSIBLE = "the log-probabilities are impossible: above 0, or of probabilities that sum to more than 1"
CONTRADICTED = "the log-probabilities contradict the label"
"""Why a reply with a label has no probability; see also `TIED`."""


class NoProbability(Exception):
    """A reply's log-probabilities give no probability of its label; the message says why."""


def content_tokens(tokens: Tokens, content: str, thoughts: str = "") -> Tokens:
    """The tokens that, joined, are a reply's content and its end; none where they are not there.

    A server that keeps thoughts apart from the content gives the tokens of both, the thoughts' first (vLLM with a
    reasoning parser).

    Args:
        tokens: of the whole reply.
        content: of its message.
        thoughts: of its message, where the server gives them.
    """
    texts, end = [token["token"] for token in tokens], len(tokens)
    while end:
        start = _start_of_end(texts[:end], content.strip())
        if start is not None:
            only_thoughts = thoughts and "".join(texts[:end]).rstrip().endswith(thoughts.rstrip())
            return [] if only_thoughts else tokens[start:end]
        end -= 1
        if not _CONTROL.fullmatch(texts[end]):
            break
    return []


def _start_of_end(texts: Sequence[str], ending: str) -> int | None:
    """From which text on the last ones are, joined, what is wanted; None where they are not."""
    joined, start = "", len(texts)
    while start and len(joined.strip()) < len(ending):
        start -= 1
        joined = texts[start] + joined
    return start if joined.strip() == ending else None


def start_of(label: str, tokens: Tokens, *, key: bool) -> int | None:
    """Characters of the tokens before the label that stands in them last; None where it does not, or not once.

    Args:
        label: as it was read.
        tokens: of the content.
        key: whether it is the value of the key "label" of a JSON object.
    """
    before = r'(?<!\\)"label"\s*:\s*"?\s*' if key else ""
    matches = [*re.finditer(f"{before}({re.escape(label)})", "".join(token["token"] for token in tokens), re.I)]
    return matches[-1].start(1) if len(matches) == 1 or (matches and not key) else None


def label_probabilities(tokens: Tokens, start: int, labels: tuple[str, ...]) -> dict[str, float]:
    """Probability of each label, renormalised over the labels.

    At each token of the label, every alternative that leads to one label only adds its probability to that label;
    labels that begin alike are told apart at the tokens that follow. What was likelier but leads to no label is left
    out.

    Args:
        tokens: of the content.
        start: characters of the tokens before the label.
        labels: none of which begins with another.

    Raises:
        NoProbability: the tokens are no label, have no alternatives, or their log-probabilities are impossible.
    """
    mass = dict.fromkeys(labels, 0.0)
    text, path, n_alternatives = "", 0.0, 0
    skipped = 0
    for token in tokens:
        before = max(0, start - skipped)
        skipped += len(token["token"])
        if skipped <= start:
            continue
        alternatives = _alternatives(token)
        n_alternatives += len(alternatives) - 1
        for alternative in alternatives:
            if alternative["token"][:before] == token["token"][:before]:
                led = _labels_with_prefix(text + alternative["token"][before:], labels)
                if len(led) == 1:
                    mass[led[0]] += math.exp(path + alternative["logprob"])
        text += token["token"][before:]
        path += token["logprob"]
        if len(_labels_with_prefix(text, labels)) == 1 and text.strip():
            break
    if len(_labels_with_prefix(text, labels)) != 1:
        raise NoProbability(NOT_FOUND)
    if not n_alternatives:
        raise NoProbability(NO_ALTERNATIVES)
    total = sum(mass.values())
    if not total > 0:
        raise NoProbability(IMPOSSIBLE)
    return {label: share / total for label, share in mass.items()}


def _alternatives(token: Mapping[str, Any]) -> Tokens:
    """The chosen token and the others, each once.

    Raises:
        NoProbability: together they are more than certain, as where a server gives probabilities, or 0 for all.
    """
    top: list[Mapping[str, Any]] = token.get("top_logprobs") or []
    alternatives = top if any(alternative["token"] == token["token"] for alternative in top) else [token, *top]
    if not (
        sum(math.exp(alternative["logprob"]) for alternative in alternatives) <= _MAX_SUM
        and math.exp(token["logprob"]) <= _MAX_SUM
    ):
        raise NoProbability(IMPOSSIBLE)
    return alternatives


@lru_cache(_KEPT_BEGINNINGS)
def _labels_with_prefix(text: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Labels that a reply beginning so can still be, or already is."""
    fold = lenient_parsing.fold(labels)
    prefix = fold(text.lstrip())
    return tuple(label for label in labels if _begins_label(prefix, fold(label))) if prefix else labels


def _begins_label(text: str, label: str) -> bool:
    """Whether the text begins the label, or is it and then something that ends it, as the quote of a JSON string."""
    return label.startswith(text) or (text.startswith(label) and not text[len(label)].isalnum())
