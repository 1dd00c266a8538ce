"""Label probabilities from the log-probabilities of a reply's tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from darklode.pipeline.judge.llm import lenient_parsing

Tokens = Sequence[Mapping[str, Any]]
"""`logprobs.content` of a chat completion, or a part of it: texts, log-probabilities, alternatives."""

_CACHED_PREFIXES = 1 << 12  # prefixes of replies whose possible labels are cached

_MAX_PROBABILITY_SUM = 1.01
"""Maximum sum of the probabilities of a token's alternatives; above 1, since servers round."""

_CONTROL_TOKEN = re.compile(r"\s*|<[^<>\s]+>|\[[^\[\]\s]+\]")
"""Control tokens that may follow the content, such as <|im_end|>."""


LOGPROBS_MISSING = "the server returned no log-probabilities"
LABEL_NOT_COVERED = "the label's tokens are not among those with log-probabilities"
NO_ALTERNATIVES = "the server returned log-probabilities without alternatives"
LOGPROBS_IMPOSSIBLE = "the log-probabilities are impossible: above 0, or of probabilities that sum to more than 1"
LABEL_CONTRADICTED = "the log-probabilities contradict the label"
"""Reasons why a reply with a label has no probability; see also `TIED`."""


class NoProbability(Exception):
    """A reply's log-probabilities yield no probability of its label; the message says why."""


def content_tokens(tokens: Tokens, content: str, thoughts: str = "") -> Tokens:
    """Select the tokens of a reply's content; empty if they cannot be identified.

    A server that separates reasoning from content returns the tokens of both, reasoning first (vLLM with a reasoning
    parser).

    Args:
        tokens: tokens of the whole reply.
        content: content of its message.
        thoughts: reasoning of its message, if the server returned it separately.
    """
    texts = [token["token"] for token in tokens]
    end = len(tokens)
    while end:
        start = _start_of_end(texts[:end], content.strip())
        if start is not None:
            only_thoughts = thoughts and "".join(texts[:end]).rstrip().endswith(thoughts.rstrip())
            return [] if only_thoughts else tokens[start:end]
        end -= 1
        if not _CONTROL_TOKEN.fullmatch(texts[end]):
            break
    return []


def _start_of_end(texts: Sequence[str], ending: str) -> int | None:
    """Find the index from which the texts, joined and stripped, equal `ending`; None if there is none."""
    joined, start = "", len(texts)
    while start and len(joined.strip()) < len(ending):
        start -= 1
        joined = texts[start] + joined
    return start if joined.strip() == ending else None


def start_of(label: str, tokens: Tokens, *, key: bool) -> int | None:
    """Find the character offset of the label's last occurrence in the tokens; None if it does not occur, or as a key
    value occurs more than once.

    Args:
        label: label as it was read from the reply.
        tokens: tokens of the content.
        key: whether it is the value of the key "label" in a JSON object.
    """
    before = r'(?<!\\)"label"\s*:\s*"?\s*' if key else ""
    matches = [*re.finditer(f"{before}({re.escape(label)})", "".join(token["token"] for token in tokens), re.I)]
    return matches[-1].start(1) if len(matches) == 1 or (matches and not key) else None


def label_probabilities(tokens: Tokens, start: int, labels: tuple[str, ...]) -> dict[str, float]:
    """Compute the probability of each label, renormalized over the labels.

    At each token of the label, every alternative that is a prefix of exactly one label adds its probability to that
    label; labels with a common prefix are resolved at later tokens. Alternatives that lead to no label are ignored.

    Args:
        tokens: tokens of the content.
        start: character offset of the label in the content.
        labels: labels of the prompt; none may be a prefix of another.

    Raises:
        NoProbability: the tokens are not a label, have no alternatives, or have impossible log-probabilities.
    """
    mass = dict.fromkeys(labels, 0.0)
    text = ""  # of the label so far
    text_logprob = 0.0
    n_alternatives = 0
    end = 0  # character offset of the end of the current token
    for token in tokens:
        before = max(0, start - end)  # characters of the token before the label
        end += len(token["token"])
        if end <= start:
            continue
        alternatives = _alternatives(token)
        n_alternatives += len(alternatives) - 1
        for alternative in alternatives:
            if alternative["token"][:before] == token["token"][:before]:
                matching_labels = _labels_with_prefix(text + alternative["token"][before:], labels)
                if len(matching_labels) == 1:
                    mass[matching_labels[0]] += math.exp(text_logprob + alternative["logprob"])
        text += token["token"][before:]
        text_logprob += token["logprob"]
        if len(_labels_with_prefix(text, labels)) == 1 and text.strip():
            break
    if len(_labels_with_prefix(text, labels)) != 1:
        raise NoProbability(LABEL_NOT_COVERED)
    if not n_alternatives:
        raise NoProbability(NO_ALTERNATIVES)
    total = sum(mass.values())
    if not total > 0:
        raise NoProbability(LOGPROBS_IMPOSSIBLE)
    return {label: share / total for label, share in mass.items()}


def _alternatives(token: Mapping[str, Any]) -> Tokens:
    """List the chosen token and its alternatives, each once.

    Raises:
        NoProbability: the probabilities sum to more than `_MAX_PROBABILITY_SUM`, e.g. if a server returns probabilities
            instead of log-probabilities.
    """
    top: list[Mapping[str, Any]] = token.get("top_logprobs") or []
    alternatives = top if any(alternative["token"] == token["token"] for alternative in top) else [token, *top]
    if not (
        sum(math.exp(alternative["logprob"]) for alternative in alternatives) <= _MAX_PROBABILITY_SUM
        and math.exp(token["logprob"]) <= _MAX_PROBABILITY_SUM
    ):
        raise NoProbability(LOGPROBS_IMPOSSIBLE)
    return alternatives


@lru_cache(_CACHED_PREFIXES)
def _labels_with_prefix(text: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    """List the labels that a reply with this beginning is, or can become."""
    fold = lenient_parsing.fold(labels)
    prefix = fold(text.lstrip())
    return tuple(label for label in labels if _begins_label(prefix, fold(label))) if prefix else labels


def _begins_label(text: str, label: str) -> bool:
    """Whether the text is a prefix of the label, or the label followed by a non-alphanumeric character, such as a JSON
    quote.
    """
    return label.startswith(text) or (text.startswith(label) and not text[len(label)].isalnum())
