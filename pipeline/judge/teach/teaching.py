"""Teach an LLM judge: choose among changed prompts on some queries, and test the chosen one on others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.judge.teach.candidates import Candidate, write_candidates
from darklode.pipeline.judge.teach.comparison import KappaDifference, kappa_difference
from darklode.pipeline.judge.teach.examples import (
    HELD_OUT,
    TaughtPair,
    part_of,
    rubric_lines,
    select_examples,
    without,
)

Labels = list[bool | None]

JudgeWithPrompt = Callable[[str, Sequence[TaughtPair]], Labels]
"""Labels of the judge with a prompt (a name or a path) for some pairs; None: unreadable."""


@dataclass(frozen=True)
class TeachingResult:
    """What was tried and how it did.

    Attributes:
        examples: pairs in the new examples.
        lines: lines added to the instructions, if the chosen prompt has them.
        tried: kappa of each changed prompt on the queries that chose it.
        change: the chosen change.
        held_out: comparison with today's prompt on the held-out queries.
        files: content of the chosen prompt's files, by name.
    """

    examples: list[TaughtPair]
    lines: list[str]
    tried: dict[str, float]
    change: str
    held_out: KappaDifference
    files: dict[str, str]


def teach(
    pairs: Sequence[TaughtPair], judge: JudgeWithPrompt, prompt: str, name: str, *, n_examples: int, seed: int
) -> TeachingResult:
    """Change a prompt by the judge's errors on half of the labelled queries, and test it on the other half.

    Examples and rubric come from the teaching half. Of the changed prompts the one with the highest kappa on the other
    queries of that half is chosen, and it alone is compared with today's prompt on the held-out half: so the choice
    does not bias the comparison.

    Args:
        pairs: labelled pairs; their labels by today's judge are filled in here.
        judge: the judge, given a prompt.
        prompt: today's prompt.
        name: name of the new prompt's folder.
        n_examples: maximum number of new examples.
        seed: random seed of halves and intervals.

    Raises:
        InputError: too few labels in a half, or the judge made no error that can be an example.
    """
    judged = [replace(pair, relevant=label) for pair, label in zip(pairs, judge(prompt, pairs), strict=True)]
    held_out = [pair for pair in judged if part_of(pair, seed) == HELD_OUT]
    teaching = [pair for pair in judged if part_of(pair, seed) != HELD_OUT]
    for part, half in (("teaching", teaching), ("held-out", held_out)):
        _check_enough(part, half)
    examples, lines = select_examples(teaching, n_examples), rubric_lines(teaching)
    if not examples:
        raise InputError("the judge made no error, short enough for an example, on the teaching half of the queries")
    choosing = without(teaching, examples)
    with tempfile.TemporaryDirectory(prefix="darklode-teach-") as scratch:
        candidates = write_candidates(name, prompt, examples, lines, Path(scratch))
        tried = {candidate.change: _kappa(candidate, choosing, judge, seed) for candidate in candidates}
        best = max(candidates, key=lambda candidate: np.nan_to_num(tried[candidate.change], nan=-1.0))
        comparison = _compare(held_out, judge(str(best.folder), held_out), seed)
        files = {file.name: file.read_text(encoding="utf-8") for file in sorted(best.folder.iterdir())}
    return TeachingResult(examples, lines if "rubric" in best.change else [], tried, best.change, comparison, files)


def _check_enough(part: str, pairs: Sequence[TaughtPair]) -> None:
    n_positive = sum(pair.positive for pair in pairs)
    if len(pairs) < MIN_LABELS // 2 or min(n_positive, len(pairs) - n_positive) < MIN_OF_EACH:
        raise InputError(
            f"the {part} half of the queries has {len(pairs)} labelled pairs, {n_positive} of them relevant; at least "
            f"{MIN_LABELS // 2} are needed, {MIN_OF_EACH} of them relevant and {MIN_OF_EACH} not: review more pairs"
        )


def _kappa(candidate: Candidate, pairs: Sequence[TaughtPair], judge: JudgeWithPrompt, seed: int) -> float:
    return _compare(pairs, judge(str(candidate.folder), pairs), seed).candidate


def _compare(pairs: Sequence[TaughtPair], labels: Labels, seed: int) -> KappaDifference:
    return kappa_difference(
        [f"{pair.tenant}/{pair.query_id}" for pair in pairs],
        [pair.positive for pair in pairs],
        [pair.relevant for pair in pairs],
        labels,
        seed,
    )
