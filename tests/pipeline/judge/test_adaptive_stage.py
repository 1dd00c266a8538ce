"""The judge stage at adaptive depth: rounds, kills, tenants, and what was never judged."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import darklode.pipeline.judge.adaptive.rounds
from darklode.pipeline.base.artifacts import Manifest, Output, Run, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.evaluate.audit import AUDIT_STAGE, audit
from darklode.pipeline.judge.label import LABEL, write_labels
from darklode.pipeline.judge.panel import Panel, Vote
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.judge.stage import ADAPTIVE_JUDGE, JUDGE, judge
from darklode.pipeline.report.card import card
from darklode.pipeline.report.caveats import caveats
from darklode.pipeline.retrieve.pool import POOL_STAGE, pool
from darklode.pipeline.triplets.pooled import TRIPLETS_STAGE, triplets
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.judging import JudgeSettings, LabelSettings
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.settings import Settings, TripletSettings
from darklode.schemas.tables import RANKINGS
from helpers.judge_tables import chunks, queries
from helpers.runs import execute, put, read
from helpers.scripted_judge import NOT_RELEVANT, RELEVANT, UNREADABLE, Said, ScriptedJudge

ADAPTIVE = JudgeSettings(strategy="adaptive", random_share=0.3)
TOPICS = [f"topic{number}" for number in range(24)]
N_CHUNKS = 240


def corpus(seed: int) -> dict[str, str]:
    """Chunks on two topics each, with noise: a query's positives are those on its topic."""
    dice = random.Random(seed)
    noise = [f"word{number}" for number in range(60)]
    return {
        f"c{number:03}": " ".join([*dice.sample(TOPICS, 2), *dice.choices(noise, k=6)]) for number in range(N_CHUNKS)
    }


def lists(tenant: str, texts: dict[str, str], seed: int) -> pa.Table:
    """Rankings of two retrievers that put on-topic chunks first, more or less."""
    dice, rows = random.Random(seed), []
    for query in TOPICS:
        for name, blur in (("bm25", 1.0), ("dense", 2.0)):
            score = {chunk: (query in text.split()) + dice.gauss(0, blur) / 2 for chunk, text in texts.items()}
            best = sorted(score, key=lambda chunk: -score[chunk])[:120]
            rows += [(query, name, place, chunk, score[chunk]) for place, chunk in enumerate(best, 1)]
    names = ("query_id", "retriever", "rank", "chunk_id", "score")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return RANKINGS.rows({"tenant": [tenant] * len(rows), **columns})


def prepared(run: Run, tenants: tuple[str, ...] = ("a",)) -> Run:
    """A run whose pool waits to be judged: 24 queries with some 80 candidates each, for each tenant."""
    texts = {tenant: corpus(number) for number, tenant in enumerate(tenants)}
    put(run, "queries", pa.concat_tables(queries(tenant, {query: query for query in TOPICS}) for tenant in tenants))
    put(run, "chunks", pa.concat_tables(chunks(tenant, of) for tenant, of in texts.items()))
    put(run, "rankings", pa.concat_tables(lists(tenant, of, 7) for tenant, of in texts.items()))
    execute(run, POOL_STAGE, lambda tables, output: pool(tables, output, PoolSettings(depth=60)))
    return run


def on_topic(pair: Any) -> Said:
    return RELEVANT if pair["query"] in pair["text"].split() else NOT_RELEVANT


def now_and_then_unreadable(pair: Any) -> Said:
    return UNREADABLE if pair["chunk_id"].endswith("7") else on_topic(pair)


def stage(judge_for: Callable[[TenantChunks], Judge], settings: JudgeSettings = ADAPTIVE, seed: int = 5) -> Any:
    def work(tables: Tables, output: Output) -> None:
        judge(tables, output, settings, judge_for=judge_for, seed=seed)

    return work


def judged(run: Run, by: Judge, settings: JudgeSettings = ADAPTIVE, seed: int = 5) -> Manifest:
    return execute(run, ADAPTIVE_JUDGE, stage(lambda _chunks: by, settings, seed))


def files(run: Run) -> dict[str, bytes | None]:
    manifest = run.manifests()["judge"]
    return {part.file: run.store.read(part.file) for parts in manifest.outputs.values() for part in parts}


def pairs_of(run: Run, table: str) -> list[tuple[object, ...]]:
    return [(row["tenant"], row["query_id"], row["chunk_id"]) for row in read(run, table)]


@pytest.fixture(autouse=True)
def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darklode.pipeline.judge.adaptive.rounds, "MIN_ROUND", 80)


def test_every_pair_of_the_pool_is_judged_once_or_marked_as_unjudged(run: Run) -> None:
    by = ScriptedJudge(now_and_then_unreadable)
    manifest = judged(prepared(run), by)
    verdicts, left = pairs_of(run, "verdicts"), pairs_of(run, "unjudged")
    assert sorted(verdicts + left) == sorted(pairs_of(run, "pool"))
    assert len(set(verdicts)) == len(verdicts) == len(by.asked)
    assert len(left) > 200
    (step,) = manifest.funnel
    assert (step.rows_in, step.dropped["unjudged"]) == (len(verdicts) + len(left), len(left))
    assert not {row[1:] for row in pairs_of(run, "verdicts")} & {row[1:] for row in left}
    assert all(0 <= row["probability"] <= 1 for row in read(run, "unjudged"))  # type: ignore[operator]


def test_a_panel_is_asked_in_rounds_too_and_its_members_are_kept(run: Run) -> None:
    members = [ScriptedJudge(on_topic, judge_id=name) for name in ("one", "two")]
    judged(prepared(run), Panel(members, Vote("majority", (1.0, 1.0), 0.5)))
    verdicts, left = pairs_of(run, "verdicts"), pairs_of(run, "unjudged")
    assert sorted(verdicts + left) == sorted(pairs_of(run, "pool"))
    assert len(left) > 200
    assert sorted(pairs_of(run, "panel_verdicts")) == sorted(2 * verdicts)
    assert {row["judge_id"] for row in read(run, "panel_verdicts")} == {"one", "two"}


def test_it_finds_the_wanted_share_and_says_what_it_missed(run: Run) -> None:
    judged(prepared(run), ScriptedJudge(on_topic))
    (row,) = read(run, "stopping")
    texts = corpus(0)
    positives = sum(str(query) in texts[str(chunk)].split() for _, query, chunk in pairs_of(run, "pool"))
    found = sum(1 for verdict in read(run, "verdicts") if verdict["relevant"])
    assert row["positives"] == found >= 0.9 * positives
    assert row["judged"] == len(read(run, "verdicts")) < row["pairs"]
    assert row["missed_low"] <= 1 - found / positives <= row["missed_high"]  # type: ignore[operator]
    assert row["queries"] == row["queries_found"] == len(TOPICS)
    assert row["query_missed_low"] <= row["query_missed_share"] <= row["query_missed_high"]  # type: ignore[operator]


def test_card_and_caveats_say_what_was_left_out(run: Run) -> None:
    judged(prepared(run), ScriptedJudge(on_topic))
    (row,), left = read(run, "stopping"), len(read(run, "unjudged"))
    (said,) = [one for one in caveats(all_tables(run), Settings()) if "not judged" in one]
    assert said.startswith(f"{left:,} pairs of the pool were not judged")
    assert f"{row['missed_low']:.1%} to {row['missed_high']:.1%}" in said
    assert f"Averaged per query, {row['query_missed_share']:.1%}" in said
    text = card(run, Settings(), [said])
    assert "## Stopping of adaptive judging" in text
    assert said in text


def test_batches_hold_one_tenants_pairs_in_order_and_keep_a_server_busy(run: Run) -> None:
    by = ScriptedJudge(on_topic)
    judged(prepared(run), by)
    for batch in by.batches:
        ids = [(row["query_id"], row["chunk_id"]) for row in batch.select(["query_id", "chunk_id"]).to_pylist()]
        assert ids == sorted(ids)
    assert {len(batch) for batch in by.batches[:-1]} == {80}


@pytest.mark.slow
@pytest.mark.parametrize("fail_at", [1, 3, 9])
def test_a_killed_run_goes_on_where_it_stopped_and_ends_the_same(tmp_path: Path, fail_at: int) -> None:
    undisturbed = prepared(Run(str(tmp_path / "undisturbed")))
    manifest = judged(undisturbed, ScriptedJudge(now_and_then_unreadable))
    killed, broken = (
        prepared(Run(str(tmp_path / "killed"))),
        ScriptedJudge(now_and_then_unreadable, fail_at=fail_at),
    )
    with pytest.raises(ConnectionError):
        judged(killed, broken)
    after = ScriptedJudge(now_and_then_unreadable)
    assert judged(killed, after).facts == manifest.facts
    assert files(killed) == files(undisturbed)
    finished = {row for batch in broken.batches[:-1] for row in zip(batch["query_id"], batch["chunk_id"], strict=True)}
    asked = {row for batch in after.batches for row in zip(batch["query_id"], batch["chunk_id"], strict=True)}
    assert finished.isdisjoint(asked)
    assert len(finished | asked) == len(read(killed, "verdicts"))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_another_draws_another_slice(tmp_path: Path) -> None:
    runs = [prepared(Run(str(tmp_path / name))) for name in ("one", "two", "three")]
    for run, seed in zip(runs, (5, 5, 6), strict=True):
        judged(run, ScriptedJudge(on_topic), seed=seed)
    assert files(runs[0]) == files(runs[1]) != files(runs[2])


@pytest.mark.slow
def test_tenants_with_equal_ids_do_not_meet(tmp_path: Path) -> None:
    """A tenant's verdicts are those that it gets alone, whoever else is in the run."""
    alone, both = prepared(Run(str(tmp_path / "alone"))), prepared(Run(str(tmp_path / "both")), ("a", "b"))
    judged(alone, ScriptedJudge(on_topic))
    judges = {"a": ScriptedJudge(on_topic), "b": ScriptedJudge(lambda _pair: NOT_RELEVANT)}
    execute(both, ADAPTIVE_JUDGE, stage(lambda of: judges[of.tenant]))
    for name, by in judges.items():
        assert {tenant for tenant, _, _ in by.asked} == {name}
    for table in ("verdicts", "unjudged", "stopping"):
        assert [row for row in read(both, table) if row["tenant"] == "a"] == read(alone, table)


def test_a_tenant_without_positives_is_judged_to_the_end(run: Run) -> None:
    judged(prepared(run), ScriptedJudge())
    (row,) = read(run, "stopping")
    assert (row["judged"], row["positives"], row["missed_high"]) == (row["pairs"], 0, 0.0)
    assert read(run, "unjudged") == []


def test_replies_that_cannot_be_read_teach_nothing(run: Run) -> None:
    judged(prepared(run), ScriptedJudge(lambda _pair: UNREADABLE))
    assert len(read(run, "verdicts")) == len(read(run, "pool"))
    assert ({row["relevant"] for row in read(run, "verdicts")}, read(run, "unjudged")) == ({None}, [])


def test_a_pool_that_names_an_unknown_chunk_is_refused(run: Run) -> None:
    prepared(run)
    put(run, "chunks", chunks("a", {"c000": "text"}))
    with pytest.raises(ArtifactError, match="chunk_id"):
        judged(run, ScriptedJudge())


def test_back_at_full_depth_nothing_says_unjudged(run: Run) -> None:
    judged(prepared(run), ScriptedJudge(on_topic))
    execute(run, JUDGE, stage(lambda _of: ScriptedJudge(on_topic), JudgeSettings()))
    assert len(read(run, "verdicts")) == len(read(run, "pool"))
    assert not {"unjudged", "stopping"} & run.parts().keys()


def test_unjudged_pairs_never_become_negatives_or_misses(run: Run) -> None:
    judged(prepared(run), ScriptedJudge(on_topic))
    execute(run, LABEL, lambda tables, output: write_labels(tables, output, LabelSettings(min_letters=0)))
    execute(
        run,
        TRIPLETS_STAGE,
        lambda tables, output: triplets(tables, output, TripletSettings(num_negatives=40), apart=False),
    )
    left = {(query, chunk) for _, query, chunk in pairs_of(run, "unjudged")}
    rows = read(run, "triplets")
    used = {(row["query_id"], chunk) for row in rows for chunk in row["negative_ids"]}  # type: ignore[attr-defined]
    assert len(used) > 100
    assert not used & left
    execute(
        run,
        AUDIT_STAGE,
        lambda tables, output: audit(tables, output, EvaluateSettings(n_resamples=10), depth=60, seed=1),
    )
    found = sum(1 for verdict in read(run, "verdicts") if verdict["relevant"])
    assert {row["positives"] for row in read(run, "audit_retrievers")} == {found}
