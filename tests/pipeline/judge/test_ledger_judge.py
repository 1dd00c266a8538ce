"""A judge with a ledger: never asked twice, kept as they come, and what a failure or a kill leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory import store
from darklode.pipeline.judge import ledger_judge
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.port import REPLIES, ReplyBatch
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.judge.stage import judge as stage
from darklode.schemas.judging import JudgeSettings
from helpers import judge_tables
from helpers.hash_encoder import content_hash
from helpers.runs import PYTHONPATH, execute, put
from helpers.scripted_judge import UNREADABLE, Said
from helpers.scripted_stream import ScriptedStream, by_parity, pairs, replies


@pytest.fixture
def kept(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path))


def judged(judge: LedgerJudge, rows: pa.Table) -> list[dict[str, Any]]:
    found = asyncio.run(judge.judge(rows))
    assert found.schema.equals(REPLIES)
    answers: list[dict[str, Any]] = found.to_pylist()
    return answers


def expected(rows: pa.Table) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = replies(*(by_parity(pair) for pair in rows.to_pylist())).to_pylist()
    return answers


def in_ledger(kept: Ledger, judge_id: str, rows: pa.Table) -> list[int]:
    found: list[int] = kept.open(judge_id).find(rows).rows.tolist()
    return found


IDS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=30)


@settings(deadline=None, max_examples=40)
@given(batches=st.lists(IDS, min_size=1, max_size=4), at_once=st.integers(1, 9), flush=st.booleans())
def test_every_pair_is_asked_once_and_answered_in_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int]]], at_once: int, flush: bool
) -> None:
    kept, source = Ledger(str(tmp_path_factory.mktemp("ledger"))), ScriptedStream(at_once=at_once)
    judge = LedgerJudge(source, kept)
    with pytest.MonkeyPatch.context() as patch:
        if flush:
            patch.setattr(ledger_judge, "FLUSH_SECONDS", 0.0)
        for ids in batches:
            assert judged(judge, pairs(*ids)) == expected(pairs(*ids))
    every = [pair for ids in batches for pair in ids]
    assert sorted(source.asked) == sorted({(f"q{query}", f"c{chunk}") for query, chunk in every})
    assert (judge.n_requested, judge.hits) == (len(set(every)), len(every) - len(set(every)))

    again = LedgerJudge(silent := ScriptedStream(), kept)
    assert judged(again, pairs(*every)) == expected(pairs(*every))
    assert (silent.asked, again.n_requested, again.hits) == ([], 0, len(every))


def test_a_null_without_attempts_is_not_asked_again(kept: Ledger) -> None:
    refused = {"error": "the server refused the pair"}
    judged(LedgerJudge(ScriptedStream(lambda _pair: refused), kept, 3), pairs((1, 1)))
    again = ScriptedStream()
    assert judged(LedgerJudge(again, kept, 3), pairs((1, 1))) == replies(refused).to_pylist()
    assert again.asked == []


def test_what_is_asked_keeps_the_order_of_the_pairs(kept: Ledger) -> None:
    source = ScriptedStream()
    judged(LedgerJudge(source, kept), pairs((1, 1), (1, 5)))
    judged(LedgerJudge(source, kept), pairs((1, 0), (1, 1), (1, 2), (2, 5), (2, 3), (1, 2)))
    assert source.asked[2:] == [("q1", "c0"), ("q1", "c2"), ("q2", "c5"), ("q2", "c3")]


def test_a_null_is_remembered_until_it_is_worth_another_try(kept: Ledger) -> None:
    def nothing(_pair: dict[str, Any]) -> Said:
        return UNREADABLE | {"attempts": 2}

    first = ScriptedStream(nothing)
    answer = replies(UNREADABLE | {"attempts": 2}).to_pylist()
    assert judged(LedgerJudge(first, kept), pairs((1, 1))) == answer
    for attempts, times in ((1, 0), (2, 0), (3, 1)):
        second = ScriptedStream(nothing)
        assert judged(LedgerJudge(second, kept, attempts), pairs((1, 1))) == answer
        assert len(second.asked) == times
    assert judged(LedgerJudge(ScriptedStream(), kept, 3), pairs((1, 1))) == expected(pairs((1, 1)))
    assert judged(LedgerJudge(ScriptedStream(nothing), kept, 9), pairs((1, 1))) == expected(pairs((1, 1)))


def test_a_failure_costs_no_reply_that_came_before_it(kept: Ledger) -> None:
    source, rows = ScriptedStream(at_once=2, fail_after=6), pairs(*((1, chunk) for chunk in range(10)))
    judge = LedgerJudge(source, kept)
    with pytest.raises(ConnectionError, match="fails here"):
        judged(judge, rows)
    assert (len(in_ledger(kept, source.judge_id, rows)), judge.n_requested, source.closed) == (6, 6, True)
    rest = ScriptedStream()
    assert judged(LedgerJudge(rest, kept), rows) == expected(rows)
    assert len(rest.asked) == 4


def test_being_cancelled_keeps_what_was_answered_and_closes_the_source(kept: Ledger) -> None:
    source, rows = ScriptedStream(at_once=1, seconds=0.02), pairs(*((1, chunk) for chunk in range(1000)))

    async def main() -> None:
        task = asyncio.create_task(LedgerJudge(source, kept).judge(rows))
        await asyncio.sleep(0.3)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert 1 <= len(in_ledger(kept, source.judge_id, rows)) <= 20
    assert source.closed


def test_a_reply_is_kept_soon_though_no_other_comes(kept: Ledger) -> None:
    class Stalling(ScriptedStream):
        async def stream(self, rows: pa.Table) -> AsyncIterator[ReplyBatch]:
            yield self._answer(rows, [0])
            await asyncio.sleep(60)

    source, rows = Stalling(), pairs((1, 1), (1, 2))

    async def main() -> float:
        task, start = asyncio.create_task(LedgerJudge(source, kept).judge(rows)), time.monotonic()
        while not in_ledger(kept, source.judge_id, rows):
            await asyncio.sleep(0.02)
        waited = time.monotonic() - start
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return waited

    assert asyncio.run(main()) < 30


def test_a_pair_that_is_left_out_is_said(kept: Ledger) -> None:
    class Careless(ScriptedStream):
        async def stream(self, rows: pa.Table) -> AsyncIterator[ReplyBatch]:
            yield self._answer(rows, [1])

    with pytest.raises(ValueError, match="1 of 2 pairs have no reply"):
        judged(LedgerJudge(Careless(), kept), pairs((1, 1), (1, 2)))


def test_a_full_disk_stops_the_judge(kept: Ledger) -> None:
    Path(kept.parts.store.url, "verdicts").write_text("a file in the way")
    source = ScriptedStream()
    with pytest.raises(ArtifactError, match="cannot be written"):
        judged(LedgerJudge(source, kept), pairs((1, 1)))
    assert source.closed


@pytest.mark.slow
def test_of_two_that_asked_at_once_both_say_what_the_ledger_says(kept: Ledger) -> None:
    def says(raw: str, label: bool) -> ScriptedStream:
        return ScriptedStream(lambda _pair: {"relevant": label, "raw_reply": raw}, seconds=0.01)

    rows = pairs(*((1, chunk) for chunk in range(8)))

    async def main() -> tuple[pa.Table, pa.Table]:
        slow = says("slow", True)
        slow._seconds = 0.5
        both = (LedgerJudge(slow, kept).judge(rows), LedgerJudge(says("fast", False), kept).judge(rows))
        one, other = await asyncio.gather(*both)
        return one, other

    one, other = asyncio.run(main())
    assert one.equals(other)
    assert set(one["raw_reply"].to_pylist()) == {"fast"}


def test_many_small_parts_are_merged_on_the_way(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_judge, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(store, "MERGE_PARTS", 6)
    judge = LedgerJudge(ScriptedStream(at_once=1), kept)
    for query in range(8):
        rows = pairs(*((query, chunk) for chunk in range(4)))
        assert judged(judge, rows) == expected(rows)
    assert len(kept.parts.names(judge.judge_id)) < 10
    every = pairs(*((query, chunk) for query in range(8) for chunk in range(4)))
    assert judged(judge, every) == expected(every)
    assert judge.n_requested == 32


def test_damaged_parts_are_named(kept: Ledger) -> None:
    judge = LedgerJudge(ScriptedStream(), kept)
    judged(judge, pairs((1, 1)))
    part = next(Path(kept.parts.store.url).rglob("*.parquet"))
    part.write_bytes(b"PAR1")
    again = LedgerJudge(ScriptedStream(), kept)
    assert judged(again, pairs((1, 1))) == expected(pairs((1, 1)))
    assert [place.split(":")[0] for place in kept.open(again.judge_id).damaged_parts] == [str(part)]


KILLED = """
import asyncio, sys, time
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.schemas.judging import JudgeSettings
from helpers.scripted_stream import ScriptedStream, by_parity, pairs

def script(pair):
    print(time.time(), pair["chunk_id"], flush=True)
    return by_parity(pair)

source = ScriptedStream(script, at_once=1, seconds=0.002, judge_id="m")
rows = pairs(*((1, chunk) for chunk in range(100_000)))
asyncio.run(LedgerJudge(source, Ledger(sys.argv[1])).judge(rows))
"""


@pytest.mark.slow
def test_a_kill_costs_a_second_of_replies_at_most(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, stdout=-1, text=True)
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append((float(line.split()[0]), int(line.split()[1][1:])))
        if said[-1][0] - said[0][0] > 2.5:
            process.send_signal(signal.SIGKILL)
            break
    rest, _ = process.communicate()
    said += [(float(line.split()[0]), int(line.split()[1][1:])) for line in rest.splitlines()]
    kept = Ledger(str(tmp_path))
    known = kept.open("m")
    assert known.damaged_parts == []
    held = set(known.find(pairs(*((1, chunk) for chunk in range(100_000)))).rows.tolist())
    lost = [when for when, chunk in said if chunk not in held]
    assert held
    assert not lost or said[-1][0] - min(lost) <= 1 + 0.5, "a second, and what a busy machine adds"
    after = ScriptedStream(judge_id="m")
    rows = pairs(*((1, chunk) for _, chunk in said))
    assert judged(LedgerJudge(after, kept), rows) == expected(rows)
    assert len(after.asked) == len(lost)


def test_the_stage_records_hits_and_calls_of_a_judge_of_all_tenants(kept: Ledger, run: Run) -> None:
    hashes = {"content_hash": [content_hash("so"), content_hash("thus")]}
    put(run, "queries", pa.concat_tables(judge_tables.queries(t, {"q1": "why"}) for t in "ab"))
    put(run, "chunks", pa.concat_tables(judge_tables.chunks(t, {"c1": "so", "c2": "thus"}, **hashes) for t in "ab"))
    put(run, "pool", pa.concat_tables(judge_tables.pool(t, [("q1", "c1"), ("q1", "c2")]) for t in "ab"))
    judge = LedgerJudge(ScriptedStream(), kept)
    manifest = execute(
        run, JUDGE, lambda tables, output: stage(tables, output, JudgeSettings(), judge_for=lambda _: judge)
    )
    assert (manifest.facts["hits"], manifest.facts["asked"]) == (2, 2)
