"""From the log-probabilities of tokens to the probabilities of labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def start_of(quoted_label: str, tokens: Sequence[Mapping[str, Any]]) -> int:
    """Characters of the tokens before the label, given with its quotes, that stands in them last."""
    return "".join(token["token"] for token in tokens).rfind(quoted_label) + 1


def label_probabilities(tokens: Sequence[Mapping[str, Any]], start: int, labels: Sequence[str]) -> dict[str, float]:
    """Probability of each label, renormalised over the labels; empty where the tokens say nothing of them.

    At each token of the label, every alternative that leads to one label only adds its probability to that label;
    labels that begin alike are told apart at the tokens that follow. What was likelier but leads to no label is
    left out.

    Args:
        tokens: `logprobs.content` of a chat completion.
        start: characters of the tokens before the label.
        labels: none of which begins with another.
    """
    mass = dict.fromkeys(labels, 0.0)
    text, path = "", 0.0
    skipped = 0
    for token in tokens:
        before = max(0, start - skipped)
        skipped += len(token["token"])
        if skipped <= start:
            continue
        for one in _alternatives(token):
            if one["token"][:before] == token["token"][:before]:
                led = _led(text + one["token"][before:], labels)
                if len(led) == 1:
                    mass[led[0]] += math.exp(min(path + one["logprob"], 0.0))
        text += token["token"][before:]
        path += token["logprob"]
        if len(_led(text, labels)) == 1 and text.strip():
            break
    total = sum(mass.values())
    return {label: share / total for label, share in mass.items()} if total > 0 else {}


def _alternatives(token: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The chosen token and the others, each once."""
    top: list[Mapping[str, Any]] = token.get("top_logprobs") or []
    return top if any(one["token"] == token["token"] for one in top) else [token, *top]


def _led(text: str, labels: Sequence[str]) -> list[str]:
    """Labels that a reply beginning so can still be, or already is."""
    found = text.lstrip()
    return [label for label in labels if label.startswith(found) or _begins(found, label)] if found else list(labels)


def _begins(text: str, label: str) -> bool:
    """Whether the text is the label and then something that ends it, such as the quote that closes a JSON string."""
    return text.startswith(label) and not text[len(label)].isalnum()
