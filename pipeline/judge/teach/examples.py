"""Choose few-shot examples and rubric lines from the pairs that a judge labelled wrong."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

MAX_CHUNK_CHARACTERS = 1_000
"""Longer chunks are no examples: every call would pay for them, and a cut chunk may have lost its answer."""
MAX_REASON_CHARACTERS = 200
MAX_RUBRIC_LINES = 8
MIN_REASON_COUNT = 2
"""Pairs that must share a reason before it becomes a line of the rubric."""

TEACHING, HELD_OUT = "teaching", "held out"


@dataclass(frozen=True)
class TaughtPair:
    """A pair with people's label and the judge's.

    Attributes:
        tenant: its tenant.
        query_id: id of the query.
        chunk_id: id of the chunk.
        query: text of the query.
        title: title of the chunk's document.
        heading: headings above the chunk.
        chunk: text of the chunk.
        relevance: people's label: 0 or a grade.
        relevant: the judge's label; None: unreadable.
        probability: the judge's probability, if it has one.
        reason: people's reason; empty if none was given.
    """

    tenant: str
    query_id: str
    chunk_id: str
    query: str
    title: str | None
    heading: str | None
    chunk: str
    relevance: int
    relevant: bool | None
    probability: float | None
    reason: str = ""

    @property
    def positive(self) -> bool:
        """Whether people call it relevant."""
        return self.relevance > 0

    @property
    def is_wrong(self) -> bool:
        """Whether the judge's label differs from people's."""
        return self.relevant is not None and self.relevant != self.positive

    @property
    def confidence(self) -> float:
        """The judge's confidence in its label, 0.5 to 1; 0.5 if unknown."""
        return 0.5 if self.probability is None else max(self.probability, 1 - self.probability)


def part_of(pair: TaughtPair, seed: int) -> str:
    """Half of the queries teach, the other half tests; a text of a query is in one half only."""
    digest = hashlib.sha256(f"{seed} {' '.join(pair.query.lower().split())}".encode()).digest()
    return TEACHING if digest[0] % 2 else HELD_OUT


def select_examples(pairs: Iterable[TaughtPair], n: int) -> list[TaughtPair]:
    """Choose up to `n` of the judge's errors: false positives and false negatives in turn, each query once.

    Errors with a reason come first, then those of which the judge was surest; ties are broken by id.

    Args:
        pairs: labelled pairs of the queries that teach.
        n: maximum number of examples.
    """
    short = [pair for pair in pairs if pair.is_wrong and 0 < len(pair.chunk) <= MAX_CHUNK_CHARACTERS]
    ordered = sorted(
        short, key=lambda pair: (not pair.reason, -pair.confidence, pair.tenant, pair.query_id, pair.chunk_id)
    )
    false_positives = [pair for pair in ordered if not pair.positive]
    false_negatives = [pair for pair in ordered if pair.positive]
    chosen: dict[str, TaughtPair] = {}
    for pair in (pair for row in zip_longest(false_positives, false_negatives) for pair in row if pair is not None):
        if len(chosen) < n:
            chosen.setdefault(" ".join(pair.query.lower().split()), pair)
    return list(chosen.values())


def rubric_lines(pairs: Iterable[TaughtPair]) -> list[str]:
    """Lines for the judge's instructions, from the reasons that people gave most often for its errors.

    Args:
        pairs: labelled pairs of the queries that teach.
    """
    counts: Counter[tuple[bool, str]] = Counter(
        (pair.positive, plain_reason(pair.reason)) for pair in pairs if pair.is_wrong and plain_reason(pair.reason)
    )
    frequent = sorted((-count, key) for key, count in counts.items() if count >= MIN_REASON_COUNT)
    return [
        f"- {'Relevant' if positive else 'Not relevant'}, although it was labelled otherwise: {reason}"
        for _, (positive, reason) in frequent[:MAX_RUBRIC_LINES]
    ]


def plain_reason(reason: str) -> str:
    """A reason on one line, without braces, which a template would read as placeholders."""
    return " ".join(reason.replace("{", "(").replace("}", ")").split())[:MAX_REASON_CHARACTERS]


def label_name(labels: Mapping[str, int], relevant_from: int, pair: TaughtPair) -> str:
    """The prompt's label for people's label of a pair.

    People's grade is used where the prompt has it on the same side of `relevant_from`; otherwise the lowest grade of
    that side.
    """
    same_side = {grade: label for label, grade in labels.items() if (grade >= relevant_from) == pair.positive}
    return same_side.get(pair.relevance, same_side[min(same_side)])


def without(pairs: Sequence[TaughtPair], examples: Sequence[TaughtPair]) -> list[TaughtPair]:
    """The pairs of other queries than those of the examples."""
    used = {" ".join(example.query.lower().split()) for example in examples}
    return [pair for pair in pairs if " ".join(pair.query.lower().split()) not in used]
