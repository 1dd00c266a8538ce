from collections.abc import Sequence

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.judge.llm.prompt import load_prompt
from darklode.pipeline.judge.teach.examples import HELD_OUT, TaughtPair, part_of
from darklode.pipeline.judge.teach.teaching import Labels, teach

SEED = 3


def pairs(n_queries: int = 60) -> list[TaughtPair]:
    """Four pairs of each query; two of them are relevant."""
    return [
        TaughtPair(
            "a", f"q{query}", f"c{chunk}", f"query {query}", None, None, f"text {query} {chunk}", chunk % 2, None, None
        )
        for query in range(n_queries)
        for chunk in range(4)
    ]


class Pupil:
    """Calls everything relevant until its prompt shows an example of these pairs.

    Args:
        learns: whether examples help.
    """

    def __init__(self, *, learns: bool) -> None:
        self.learns = learns
        self.judged: list[tuple[str, list[TaughtPair]]] = []

    def __call__(self, prompt: str, asked: Sequence[TaughtPair]) -> Labels:
        self.judged.append((prompt, list(asked)))
        is_taught = self.learns and any(example.query.startswith("query") for example in load_prompt(prompt).examples)
        return [pair.positive if is_taught else True for pair in asked]


def test_a_prompt_that_helps_is_better_on_queries_that_it_has_not_seen() -> None:
    judge = Pupil(learns=True)
    lesson = teach(pairs(), judge, "binary", "mine", n_examples=4, seed=SEED)
    assert lesson.held_out.is_better
    assert (lesson.held_out.today, lesson.held_out.candidate) == (0.0, 1.0)
    assert len(lesson.examples) == 4
    assert set(lesson.files) == {"prompt.yaml", "system.md", "user.md", "examples.yaml"}
    held_out = {pair.query for _, asked in judge.judged[-1:] for pair in asked}
    assert all(part_of(pair, SEED) != HELD_OUT for pair in lesson.examples)
    assert held_out == {pair.query for pair in pairs() if part_of(pair, SEED) == HELD_OUT}
    choosing = {pair.query for _, asked in judge.judged[1:-1] for pair in asked}
    assert not choosing & (held_out | {pair.query for pair in lesson.examples})


def test_a_prompt_that_changes_nothing_is_not_better() -> None:
    lesson = teach(pairs(), Pupil(learns=False), "binary", "mine", n_examples=4, seed=SEED)
    assert not lesson.held_out.is_better
    assert set(lesson.tried) == {"examples added", "examples replaced"}


def test_too_few_labels_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"half of the queries has \d+ labelled pairs, \d+ of them relevant; at least 50"
    ):
        teach(pairs(10), Pupil(learns=True), "binary", "mine", n_examples=4, seed=SEED)


def test_a_judge_without_errors_cannot_be_taught() -> None:
    def perfect(_prompt: str, asked: Sequence[TaughtPair]) -> Labels:
        return [pair.positive for pair in asked]

    with pytest.raises(InputError, match="made no error"):
        teach(pairs(), perfect, "binary", "mine", n_examples=4, seed=SEED)
