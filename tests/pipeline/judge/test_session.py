"""A judging session: replies held to the port, units that are done once, progress in the measure of the stage."""

from __future__ import annotations

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.judge.port import PAIRS, REPLIES
from darklode.pipeline.judge.session import JudgingSession, judge_facts, label_counts, labels_as_floats
from helpers.runs import execute
from helpers.scripted_judge import RELEVANT, UNREADABLE, ScriptedJudge

STAGE = Stage("judging", 1, (), ())
PAIR = dict.fromkeys(PAIRS.names, "x")


class Counting(ScriptedJudge):
    """Says how far it is."""

    n_answered = 3
    note = "3 replicas"

    @property
    def live(self) -> Counting:
        return self


def pairs(number: int) -> pa.Table:
    return pa.Table.from_pylist([PAIR] * number, schema=PAIRS)


def test_a_unit_is_done_once_and_counted_each_time(run: Run) -> None:
    begun: list[str] = []

    def work(_tables: Tables, output: Output) -> None:
        with JudgingSession(output, 2) as session:
            for name in ("a", "b"):
                session.unit(name, "basis", lambda name=name: begun.append(name) or {"relevant": 1})  # type: ignore[misc]
            assert session.counts == {"relevant": 2}
        raise ConnectionError("killed after its units")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            execute(run, STAGE, work)
    assert begun == ["a", "b"]


def test_progress_is_in_the_measure_of_the_stage(run: Run) -> None:
    told: list[tuple[int, int | None, str]] = []

    def work(_tables: Tables, output: Output) -> None:
        with JudgingSession(output, 10, progress_count="queries") as session:
            session.unit("a", "basis", lambda: {"queries": 4, "positives": 3})
            session.report(Counting(), unit_progress=2)

    run.execute(run.plan(STAGE, {}), work, lambda *what: told.append(what))
    assert told == [(4, 10, ""), (6, 10, "3 replicas")]


def test_replies_are_held_to_the_port(run: Run) -> None:
    class Silent(ScriptedJudge):
        async def judge(self, pairs: pa.Table) -> pa.Table:
            return pa.Table.from_pylist([dict.fromkeys(REPLIES.names)] * len(pairs), schema=REPLIES)

    def work(_tables: Tables, output: Output) -> None:
        with JudgingSession(output, 1) as session:
            session.replies(ScriptedJudge(lambda _pair: RELEVANT), pairs(2))
            session.replies(Silent(), pairs(2))

    with pytest.raises(ValueError, match="a reply without a label must say why in `error`"):
        execute(run, STAGE, work)


def test_labels_are_counted_and_read_with_what_is_unknown_apart() -> None:
    labels = pa.chunked_array([[True, None, False, True]])
    assert label_counts(labels) == {"relevant": 2, "not_relevant": 1, "unreadable": 1}
    assert str(labels_as_floats(labels).tolist()) == "[1.0, nan, 0.0, 1.0]"
    assert label_counts(pa.chunked_array([], pa.bool_())) == {"relevant": 0, "not_relevant": 0, "unreadable": 0}


def test_a_judge_of_several_tenants_counts_once() -> None:
    judge = ScriptedJudge(lambda _pair: UNREADABLE, judge_id="one")
    judge.facts = {"calls": 3}  # type: ignore[attr-defined]
    other = ScriptedJudge(judge_id="other")
    assert judge_facts([judge, other, judge]) == {"judge_ids": ["one", "other"], "calls": 3}
