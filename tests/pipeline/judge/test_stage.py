import asyncio
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Output, Run, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.remote import background
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.cascade import Cascade, CascadeBand
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.port import QUERY_BLOCK, REPLIES, Judge, Live
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.pipeline.judge.threshold import Thresholded
from darklode.schemas.judging import JudgeSettings
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import execute, put, read
from helpers.scripted_judge import NOT_RELEVANT, RELEVANT, UNREADABLE, ScriptedJudge, from_table

QUERY_IDS = [f"q{number:03}" for number in range(2 * QUERY_BLOCK + 2)]
CHUNK_IDS = ["c0", "c1", "c2"]
EVERY = [(query, chunk) for query in QUERY_IDS for chunk in CHUNK_IDS]


def stage(judge_for: Callable[[TenantChunks], Judge]) -> Callable[[Tables, Output], None]:
    return lambda tables, output: judge(tables, output, JudgeSettings(), judge_for=judge_for)


def judged(run: Run, by: Judge) -> Manifest:
    return execute(run, JUDGE, stage(lambda _chunks: by))


def small(run: Run, tenants: tuple[str, ...] = ("a",)) -> Run:
    """Two queries and two chunks of the same ids for each tenant."""
    put(run, "queries", pa.concat_tables(queries(t, {"q2": f"{t} why", "q1": f"{t} how"}) for t in tenants))
    put(run, "chunks", pa.concat_tables(chunks(t, {"c2": f"{t} so", "c1": f"{t} thus"}) for t in tenants))
    put(run, "pool", pa.concat_tables(pool(t, [("q2", "c1"), ("q1", "c2"), ("q1", "c1")]) for t in tenants))
    return run


def large(run: Run, texts: dict[str, str] | None = None, pairs: list[tuple[str, str]] = EVERY) -> Run:
    """Three blocks of queries."""
    put(run, "queries", queries("a", {name: f"text of {name}" for name in QUERY_IDS}))
    put(run, "chunks", chunks("a", texts or {name: f"text of {name}" for name in CHUNK_IDS}))
    put(run, "pool", pool("a", pairs))
    return run


def files(run: Run) -> dict[str, bytes | None]:
    """Names and bytes of the stage's parts."""
    manifest = run.manifests()["judge"]
    return {part.file: run.store.read(part.file) for parts in manifest.outputs.values() for part in parts}


def test_verdicts_are_written_in_order_of_query_and_chunk(run: Run) -> None:
    graded = {"relevant": True, "probability": 0.8, "grade": 3, "prompt_tokens": 90, "raw_reply": "3"}
    script = from_table({("q1", "c1"): graded, ("q2", "c1"): RELEVANT})
    judged(small(run), ScriptedJudge(script))
    verdicts = read(run, "verdicts")
    assert [(row["query_id"], row["chunk_id"], row["relevant"], row["grade"]) for row in verdicts] == [
        ("q1", "c1", True, 3),
        ("q1", "c2", False, None),
        ("q2", "c1", True, None),
    ]
    assert (verdicts[0]["judge_id"], verdicts[0]["prompt_tokens"], verdicts[0]["raw_reply"]) == ("scripted", 90, "3")


def test_verdicts_of_a_cascade_name_the_judge_that_answered_with_its_fitted_threshold(run: Run) -> None:
    unsure = {"relevant": True, "probability": 0.5}
    first = ScriptedJudge(from_table({("q1", "c1"): unsure}), "small")
    cascade = Cascade(first, ScriptedJudge(lambda _pair: RELEVANT, "large"), CascadeBand(0.2, 0.8))
    manifest = judged(small(run), Thresholded(cascade, 0.05))
    rows = {(row["query_id"], row["chunk_id"]): row for row in read(run, "verdicts")}
    assert {row["judge_id"] for row in rows.values()} == {"small:0.05", "large:0.05"}
    assert rows["q1", "c1"]["judge_id"] == "large:0.05"
    assert all(row["relevant"] for row in rows.values()), "every probability is above the threshold"
    assert manifest.facts["judge_ids"] == ["large:0.05", "small:0.05"]
    assert (manifest.facts["answered_small"], manifest.facts["answered_large"]) == (2, 1)


def test_an_unreadable_reply_stays_null(run: Run) -> None:
    judged(small(run), ScriptedJudge(from_table({("q1", "c2"): UNREADABLE})))
    (unread,) = [row for row in read(run, "verdicts") if row["relevant"] is None]
    assert (unread["query_id"], unread["chunk_id"]) == ("q1", "c2")
    assert (unread["probability"], unread["grade"]) == (None, None)
    assert (unread["raw_reply"], unread["error"]) == (UNREADABLE["raw_reply"], UNREADABLE["error"])


def test_the_manifest_counts_what_was_judged(run: Run) -> None:
    script = from_table({("q1", "c1"): RELEVANT, ("q1", "c2"): UNREADABLE})
    manifest = judged(small(run), ScriptedJudge(script))
    assert manifest.funnel == [FunnelStep("judge", "pairs", 3, "verdicts", 3)]
    assert manifest.facts == {
        "kind": "embedded",
        "judge_ids": ["scripted"],
        "relevant": 1,
        "not_relevant": 1,
        "unreadable": 1,
    }


def test_an_empty_pool_gives_empty_tables(run: Run) -> None:
    put(run, "queries", queries("a", {}))
    put(run, "chunks", chunks("a", {}))
    put(run, "pool", pool("a", []))
    manifest = judged(run, ScriptedJudge())
    assert read(run, "verdicts") == []
    assert manifest.funnel == [FunnelStep("judge", "pairs", 0, "verdicts", 0)]


def test_tenants_with_equal_ids_do_not_meet(run: Run) -> None:
    judges = {name: ScriptedJudge(lambda _pair: RELEVANT, f"judge of {name}") for name in ("a", "b")}
    judges["b"] = ScriptedJudge(judge_id="judge of b")
    manifest = execute(small(run, ("b", "a")), JUDGE, stage(lambda of: judges[of.tenant]))
    for name, by in judges.items():
        for batch in by.batches:
            assert set(batch["tenant"].to_pylist()) == {name}
            shown = batch["query"].to_pylist() + batch["text"].to_pylist()
            assert all(text.startswith(f"{name} ") for text in shown)
    pairs = [("q1", "c1"), ("q1", "c2"), ("q2", "c1")]
    said = [(row["tenant"], row["query_id"], row["chunk_id"], row["relevant"]) for row in read(run, "verdicts")]
    assert said == [("a", *pair, True) for pair in pairs] + [("b", *pair, False) for pair in pairs]
    labels = {(row["tenant"], row["judge_id"], row["relevant"]) for row in read(run, "verdicts")}
    assert labels == {("a", "judge of a", True), ("b", "judge of b", False)}
    assert manifest.facts["judge_ids"] == ["judge of a", "judge of b"]


def test_a_run_killed_in_the_middle_goes_on_where_it_stopped_and_ends_the_same(tmp_path: Path) -> None:
    script = from_table({("q000", "c1"): RELEVANT, (QUERY_IDS[-1], "c2"): UNREADABLE})
    undisturbed = large(Run(str(tmp_path / "undisturbed")))
    judged(undisturbed, ScriptedJudge(script))

    killed, broken = large(Run(str(tmp_path / "killed"))), ScriptedJudge(script, fail_at=2)
    with pytest.raises(ConnectionError):
        judged(killed, broken)
    assert "judge" not in killed.manifests()
    after = ScriptedJudge(script)
    manifest = judged(killed, after)

    assert files(killed) == files(undisturbed)
    assert manifest.facts == undisturbed.manifests()["judge"].facts
    finished = set(broken.asked) - set(broken.asked[-broken.batches[-1].num_rows :])
    assert finished
    assert finished.isdisjoint(after.asked)
    assert finished | set(after.asked) == {("a", query, chunk) for query, chunk in EVERY}


def test_a_changed_chunk_is_judged_again_only_where_it_is_pooled(run: Run) -> None:
    pairs = [(query, "c2" if query == QUERY_IDS[QUERY_BLOCK] else "c0") for query in QUERY_IDS]
    judged(large(run, pairs=pairs), ScriptedJudge())
    again = ScriptedJudge()
    texts = {name: f"text of {name}" for name in CHUNK_IDS}
    judged(large(run, texts | {"c2": "another text"}, pairs), again)
    assert {query for _, query, _ in again.asked} == set(QUERY_IDS[QUERY_BLOCK : 2 * QUERY_BLOCK])
    assert len(read(run, "verdicts")) == len(pairs)


def test_another_judge_judges_everything_again(run: Run) -> None:
    judged(large(run), ScriptedJudge())
    again = ScriptedJudge(judge_id="another")
    judged(run, again)
    assert len(again.asked) == len(EVERY)
    assert {row["judge_id"] for row in read(run, "verdicts")} == {"another"}


def test_all_blocks_share_one_event_loop_and_a_slow_judge_is_waited_for(run: Run) -> None:
    loops = set()

    class Waiting(ScriptedJudge):
        async def judge(self, pairs: pa.Table) -> pa.Table:
            loops.add(id(asyncio.get_running_loop()))
            return await super().judge(pairs)

    judged(large(run), Waiting(seconds=0.01))
    assert len(loops) == 1
    assert len(read(run, "verdicts")) == len(EVERY)


class Broken(ScriptedJudge):
    def __init__(self, replies: Callable[[pa.Table], pa.Table]) -> None:
        super().__init__()
        self._replies = replies

    async def judge(self, pairs: pa.Table) -> pa.Table:
        return self._replies(await super().judge(pairs))


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        (lambda said: said.slice(1), "2 replies to 3 pairs"),
        (lambda said: said.drop_columns(["error"]), "3 replies to 3 pairs"),
        (lambda said: REPLIES.empty_table(), "0 replies to 3 pairs"),
        (
            lambda said: pa.Table.from_pylist([{}] * said.num_rows, schema=REPLIES),
            "a reply without a label must say why in `error`",
        ),
    ],
)
def test_a_judge_that_breaks_its_contract_is_stopped(
    run: Run, replies: Callable[[pa.Table], pa.Table], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        judged(small(run), Broken(replies))


def test_the_embedded_judge_labels_a_run(run: Run) -> None:
    texts = {
        "c1": "Open billing and press download invoice.",
        "c2": "Reset a password with the link in the e-mail.",
        "c3": "",
        "c4": "重置密码",
    }
    asked = {"q1": "download invoice", "q2": "the of", "q3": "重置密码"}
    put(run, "queries", queries("a", asked))
    put(run, "chunks", chunks("a", texts))
    put(run, "pool", pool("a", [(query, chunk) for query in asked for chunk in texts]))

    def fitted(of: TenantChunks) -> Judge:
        return EmbeddedJudge(TermSpace(of.batches()))

    manifest = execute(run, JUDGE, stage(fitted))
    positive = [(row["query_id"], row["chunk_id"]) for row in read(run, "verdicts") if row["relevant"]]
    assert positive == [("q1", "c1"), ("q3", "c4")]
    before = files(run)
    assert execute(run, JUDGE, stage(fitted)).facts == manifest.facts
    assert files(run) == before


def test_progress_is_told_in_pairs(run: Run) -> None:
    told: list[tuple[int, int | None]] = []
    plan = large(run).plan(JUDGE, {})
    run.execute(
        plan,
        stage(lambda _of: ScriptedJudge(lambda _pair: NOT_RELEVANT)),
        lambda done, total, _note: told.append((done, total)),
    )
    assert told == [(3 * done, len(EVERY)) for done in (QUERY_BLOCK, 2 * QUERY_BLOCK, len(QUERY_IDS))]


class Slow(ScriptedJudge):
    """Says how far it is while it works on a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.n_answered, self.note = 0, ""

    @property
    def live(self) -> Live:
        return self

    async def judge(self, pairs: pa.Table) -> pa.Table:
        for _ in range(pairs.num_rows):
            await asyncio.sleep(0.002)
            self.n_answered += 1
            self.note = f"{self.n_answered} so far"
        return await super().judge(pairs)


def test_a_judge_that_takes_long_says_how_far_it_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "TICK_SECONDS", 0.02)
    told: list[tuple[int, int | None, str]] = []
    run.execute(large(run).plan(JUDGE, {}), stage(lambda _of: Slow()), lambda *said: told.append(said))
    done = [pairs for pairs, *_ in told]
    assert done == sorted(done)
    assert len(set(done)) > 6, "more often than at the end of a block"
    assert told[-1] == (len(EVERY), len(EVERY), f"{len(EVERY)} so far")
