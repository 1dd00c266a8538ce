"""Relevance one-hop: the ranker's best document, a negative from between K and T, day by day."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Output, Run, Stage, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.port import QUERY_BLOCK, Judge
from darklode.pipeline.mine.relevance import ranker as opened
from darklode.pipeline.mine.relevance import stage as of_a_day
from darklode.pipeline.mine.relevance.ranker import Ranker
from darklode.pipeline.mine.relevance.stage import RELEVANCE, relevance
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.schemas.mined_tables import LOG_QUERIES
from darklode.schemas.mining import RelevanceSettings
from darklode.schemas.settings import ChunkSettings, IngestSettings
from helpers.judge_tables import chunks
from helpers.runs import SAMPLE, execute, put, read
from helpers.scripted_judge import UNREADABLE, Said, ScriptedJudge

EMBEDDED = own_retrievers()

Queries = Mapping[str, str]
BM25 = {"bm25": EMBEDDED["bm25"]}
FIRST, SECOND, THIRD = date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)


def day_of(day: date, queries: Queries, tenant: str = "a") -> pa.Table:
    n = len(queries)
    columns = {"query_id": list(queries), **{key: list(queries.values()) for key in ("text", "normal_form")}}
    return LOG_QUERIES.rows({"tenant": [tenant] * n, "date": [day] * n} | columns)


def log(run: Run, *parts: pa.Table) -> None:
    """Give the run `log_queries`, each table as a part of its own."""

    def write(_: Tables, output: Output) -> None:
        for part in parts:
            output.write("log_queries", part)

    stage = Stage("given_log_queries", 1, (), ("log_queries",))
    run.execute(run.plan(stage, {}), write)


def corpus(texts: Mapping[str, str], tenant: str = "a", docs: Sequence[str] | None = None) -> pa.Table:
    """Chunks by id and text, each a document of its own unless said otherwise."""
    table = chunks(tenant, texts)
    hashes = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts.values()]
    table = table.set_column(table.schema.get_field_index("content_hash"), table.schema.field("content_hash"), [hashes])
    if docs is not None:
        table = table.set_column(table.schema.get_field_index("doc_id"), table.schema.field("doc_id"), [docs])
    return table


def embedded(tenant: TenantChunks) -> Judge:
    return EmbeddedJudge(TermSpace(tenant.batches()))


def ranking(
    run: Run,
    judge: Judge | Callable[[TenantChunks], Judge],
    k: int = 1,
    t: int = 3,
    *,
    retrievers: Mapping[str, Callable[[Corpus], Retriever]] = BM25,
    version: str = "v1",
    seed: int = 7,
    report: Callable[[int, int | None, str], None] = lambda *_: None,
) -> Manifest:
    """Run the stage as the flow does: it sees `chunks`, which are no part of its fingerprint."""
    settings = RelevanceSettings(ranker="judge", top_k=k, top_t=t)
    judge_for = judge if not hasattr(judge, "judge_id") else lambda _tenant: judge
    ranker = Ranker(judge_for, retrievers, version)  # type: ignore[arg-type]

    def work(_: Tables, output: Output) -> None:
        relevance(run.tables("log_queries", "chunks"), output, settings, ranker=ranker, seed=seed)

    return run.execute(run.plan(RELEVANCE, {"k": k, "t": t, "seed": seed}), work, report)


def by_number(pair: Mapping[str, object]) -> Said:
    """A chunk that ends in a number has that many hundredths."""
    return {"relevant": True, "probability": int(str(pair["chunk_id"]).rpartition("c")[2]) / 100}


def files(run: Run) -> dict[str, bytes | None]:
    parts = run.manifests()["relevance"].outputs["relevance_evidence"]
    return {part.file: run.store.read(part.file) for part in parts}


LOCKS = {f"c{n:02}": f"lock {'key ' * (n % 3)}number {n}" for n in range(1, 31)}


def test_the_best_is_positive_and_the_negative_lies_between_k_and_t(run: Run) -> None:
    put(run, "chunks", corpus(LOCKS))
    log(run, day_of(FIRST, {f"q{n:03}": "lock" for n in reversed(range(200))}))
    manifest = ranking(run, ScriptedJudge(by_number), k=3, t=8, retrievers={"all": EMBEDDED["bm25"]})
    rows = read(run, "relevance_evidence")
    assert [row["query_id"] for row in rows] == [f"q{n:03}" for n in range(200)]
    (best,) = {row["positive_id"] for row in rows}
    assert all(row["positive_score"] == pytest.approx(int(str(best)[1:]) / 100) for row in rows)
    drawn = [str(row["negative_ids"][0]) for row in rows]  # type: ignore[index]
    scores = [row["negative_scores"][0] for row in rows]  # type: ignore[index]
    assert scores == pytest.approx([int(one[1:]) / 100 for one in drawn])
    expected = sorted(candidates_of("lock", 8), reverse=True)
    assert best == expected[0]
    assert set(drawn) == set(expected[3:8]), "drawn from all ranks after K up to T, and from no other"
    assert {tuple(sorted(row["negative_ids"])) for row in rows} == {tuple(sorted(expected[3:8]))}  # type: ignore[call-overload]
    assert all(drawn.count(one) > 20 for one in expected[3:8]), "each about as often"
    assert manifest.facts["without_negative"] == 0


def candidates_of(query: str, top: int) -> list[str]:
    """BM25's best chunks among LOCKS."""
    whole = Corpus(lambda: iter([list(LOCKS.values())]), len(LOCKS), Path("unused"))
    hits = EMBEDDED["bm25"](whole).search([query], top)
    return [list(LOCKS)[row] for row in hits.rows[0] if row >= 0]


@pytest.mark.parametrize(("n", "has"), [(2, False), (3, True)])
def test_no_more_than_k_documents_have_no_negative(run: Run, n: int, has: bool) -> None:
    put(run, "chunks", corpus(dict(list(LOCKS.items())[:n])))
    log(run, day_of(FIRST, {"q": "lock"}))
    manifest = ranking(run, ScriptedJudge(by_number), k=2, t=3)
    (row,) = read(run, "relevance_evidence")
    assert row["positive_id"] == f"c{n:02}"
    assert (row["negative_ids"], row["negative_scores"]) == ((["c01"], pytest.approx([0.01])) if has else ([], []))
    assert manifest.facts["without_negative"] == (not has)


def test_ties_go_by_retrieval_then_by_id(run: Run) -> None:
    texts = {"c3": "lock", "c2": "lock", "c1": "lock lock lock other words here to make it long"}
    put(run, "chunks", corpus(texts))
    log(run, day_of(FIRST, {"q": "lock"}))
    ranking(run, ScriptedJudge(lambda _: {"relevant": True, "probability": 0.5}), k=1, t=2)
    (row,) = read(run, "relevance_evidence")
    ranks = [
        list(texts)[n]
        for n in EMBEDDED["bm25"](Corpus(lambda: iter([list(texts.values())]), 3, Path("unused")))
        .search(["lock"], 3)
        .rows[0]
    ]
    assert [row["positive_id"], *row["negative_ids"]] == ranks[:2]  # type: ignore[misc]


def test_a_document_is_worth_its_best_chunk(run: Run) -> None:
    texts = {"c90": "lock lock", "c10": "lock", "c40": "lock again", "c05": "lock key"}
    put(run, "chunks", corpus(texts, docs=["long", "other", "long", "third"]))
    log(run, day_of(FIRST, {"q": "lock"}))
    judge = ScriptedJudge(by_number)
    both = {"bm25": EMBEDDED["bm25"], "ppmi": EMBEDDED["ppmi"]}
    ranking(run, judge, k=1, t=2, retrievers=both)
    (row,) = read(run, "relevance_evidence")
    assert (row["positive_id"], row["negative_ids"]) == ("long", ["other"])
    assert row["positive_score"] == pytest.approx(max(int(c[1:]) for _, _, c in judge.asked) / 100)
    assert len(set(judge.asked)) == len(judge.asked), "a chunk that two retrievers name is asked about once"
    assert [c for _, _, c in judge.asked] == sorted(c for _, _, c in judge.asked)


class Fixed:
    """Gives every query the same list of chunk rows."""

    def __init__(self, *rows: int) -> None:
        self.name = "fixed"
        self._rows = rows

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        rows = np.tile(np.array(self._rows[:depth]), (len(queries), 1))
        return Hits(rows, -np.cumsum(np.ones(rows.shape, np.float32), axis=1))


def test_two_retrievers_are_fused_and_their_chunks_of_a_document_are_both_asked_about(run: Run) -> None:
    put(run, "chunks", corpus({"c10": "a", "c90": "b", "c30": "c", "c20": "d"}, docs=["long", "long", "z", "y"]))
    log(run, day_of(FIRST, {"q": "lock"}))
    lists = {"one": lambda _: Fixed(0, 2, 3, 1), "two": lambda _: Fixed(1, 3, 2, 0)}
    judge = ScriptedJudge(by_number)
    ranking(run, judge, k=1, t=3, retrievers=lists)
    (row,) = read(run, "relevance_evidence")
    assert [c for _, _, c in judge.asked] == ["c10", "c20", "c30", "c90"]
    assert (row["positive_id"], row["positive_score"]) == ("long", pytest.approx(0.9))
    alike = ScriptedJudge(lambda pair: {"probability": 0.5 if pair["chunk_id"] in {"c20", "c30"} else 0, "error": "?"})
    ranking(run, alike, k=1, t=2, retrievers=lists, version="alike")
    (row,) = read(run, "relevance_evidence")
    assert (row["positive_id"], row["negative_ids"]) == ("y", ["z"]), "equals in every respect go by doc_id"


def test_a_query_that_changed_redoes_its_day(run: Run) -> None:
    put(run, "chunks", corpus({"c1": "lock", "c2": "key"}))
    for text, best in (("lock", "c1"), ("key", "c2")):
        log(run, day_of(FIRST, {"q": text}))
        ranking(run, embedded)
        assert [row["positive_id"] for row in read(run, "relevance_evidence")] == [best]


def test_lists_grow_until_there_are_t_documents(run: Run) -> None:
    """One document fills the first lists with its chunks."""
    texts = {f"c{n:03}": "lock" for n in range(300)} | {f"d{n}c{n}": f"lock and much else {n}" for n in range(5)}
    docs = ["long"] * 300 + [f"short{n}" for n in range(5)]
    put(run, "chunks", corpus(texts, docs=docs))
    log(run, day_of(FIRST, {"q": "lock", "r": "much else"}))
    judge = ScriptedJudge(by_number)
    ranking(run, judge, k=1, t=4)
    assert len({c for _, q, c in judge.asked if q == "q"}) == 4
    assert len({c for _, q, c in judge.asked if q == "r"}) == 4


def test_queries_without_a_positive_are_counted(run: Run) -> None:
    put(run, "chunks", corpus({"c1": "lock", "c2": "lock key"}))
    texts = {"null": "lock", "zero": "key", "none": "zebra", "label": "lock key", "blank": " "}
    log(run, day_of(FIRST, texts), day_of(SECOND, {"lost": "lock"}, "nobody"))
    said: dict[str, Said] = {
        "null": UNREADABLE,
        "zero": {"relevant": False, "probability": 0.0},
        "label": {"relevant": True},
    }
    manifest = ranking(run, ScriptedJudge(lambda pair: said[pair["query_id"]]))
    (row,) = read(run, "relevance_evidence")
    assert (row["query_id"], row["positive_score"]) == ("label", 1.0)
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out) == (6, 1)
    assert step.dropped == {"tenant has no documents": 1, "no candidate": 2, "no positive probability": 2}


def test_a_document_whose_reply_cannot_be_read_has_no_rank(run: Run) -> None:
    put(run, "chunks", corpus({"c1": "lock", "c2": "lock", "c3": "lock", "c4": "lock"}))
    log(run, day_of(FIRST, {f"q{n}": "lock" for n in range(20)}))
    judge = ScriptedJudge(lambda pair: UNREADABLE if pair["chunk_id"] in {"c4", "c2"} else by_number(pair))
    ranking(run, judge, k=1, t=9)
    assert {(row["positive_id"], *row["negative_ids"]) for row in read(run, "relevance_evidence")} == {("c3", "c1")}  # type: ignore[misc]


def test_tenants_do_not_meet(run: Run) -> None:
    put(run, "chunks", pa.concat_tables([corpus({"c1": "lock"}, "a"), corpus({"c9": "lock"}, "b")]))
    log(run, pa.concat_tables([day_of(FIRST, {"q": "lock"}, "b"), day_of(FIRST, {"q": "lock"}, "a")]))
    judge = ScriptedJudge(by_number)
    ranking(run, judge)
    assert [(row["tenant"], row["positive_id"]) for row in read(run, "relevance_evidence")] == [
        ("a", "c1"),
        ("b", "c9"),
    ]
    assert judge.asked == [("a", "q", "c1"), ("b", "q", "c9")]


def test_many_tenants_are_opened_again_where_memory_is_short(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "abc"
    put(run, "chunks", pa.concat_tables([corpus({f"{name}1": f"lock {name}"}, name) for name in names]))
    days = [pa.concat_tables([day_of(d, {f"q{d}": "lock"}, n) for n in names]) for d in (FIRST, SECOND)]
    log(run, *days)
    built: list[str] = []

    def build(tenant: TenantChunks) -> Judge:
        built.append(tenant.tenant)
        return embedded(tenant)

    ranking(run, build)
    assert built == ["a", "b", "c"], "opened once for all days"
    before = files(run)
    monkeypatch.setattr(opened, "MAX_OPEN_CHUNKS", 1)
    built.clear()
    ranking(run, build, version="v2")
    assert built == [*names, *names]
    assert files(run) == before


def test_a_night_adds_its_day_and_leaves_the_others(run: Run) -> None:
    put(run, "chunks", corpus(LOCKS))
    days = [day_of(d, {f"{d}-{n}": f"lock number {n}" for n in range(9)}) for d in (FIRST, SECOND, THIRD)]
    judge = ScriptedJudge(by_number)
    log(run, *days[:2])
    ranking(run, judge)
    asked = len(judge.asked)
    log(run, *days)
    put(run, "chunks", corpus(LOCKS | {"c99": "lock of a new document"}))
    told: list[tuple[int, int | None]] = []
    manifest = ranking(run, judge, report=lambda done, total, _: told.append((done, total)))
    assert {query for _, query, _ in judge.asked[asked:]} == set(days[2]["query_id"].to_pylist())
    assert manifest.funnel[0].rows_in == 27
    assert told[0] == (9, 27)
    assert told[-1] == (27, 27)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    again = len(judge.asked)
    ranking(run, judge, version="v2")
    assert len({query for _, query, _ in judge.asked[again:]}) == 27, "another version ranks all again"


def test_an_event_that_comes_late_redoes_its_day_alone(run: Run) -> None:
    put(run, "chunks", corpus(LOCKS))
    log(run, day_of(FIRST, {"q1": "lock"}), day_of(SECOND, {"q2": "lock"}))
    judge = ScriptedJudge(by_number)
    ranking(run, judge)
    asked = len(judge.asked)
    log(run, day_of(FIRST, {"q1": "lock"}), day_of(SECOND, {"q2": "lock"}), day_of(FIRST, {"q3": "lock"}))
    ranking(run, judge)
    assert {query for _, query, _ in judge.asked[asked:]} == {"q1", "q3"}
    assert [row["query_id"] for row in read(run, "relevance_evidence")] == ["q1", "q3", "q2"]


def test_a_killed_night_goes_on_with_the_day_it_was_at(run: Run) -> None:
    put(run, "chunks", corpus(LOCKS))
    log(run, *(day_of(d, {f"{d}": "lock"}) for d in (FIRST, SECOND, THIRD)))
    with pytest.raises(ConnectionError):
        ranking(run, ScriptedJudge(by_number, fail_at=3))
    judge = ScriptedJudge(by_number)
    ranking(run, judge)
    assert {query for _, query, _ in judge.asked} == {str(THIRD)}
    assert len(read(run, "relevance_evidence")) == 3


def test_no_ranker_writes_nothing(run: Run) -> None:
    put(run, "chunks", corpus(LOCKS))
    log(run, day_of(FIRST, {"q": "lock"}))
    ranker = Ranker(embedded, BM25, "v")
    execute(
        run,
        RELEVANCE,
        lambda tables, output: relevance(tables, output, RelevanceSettings(ranker="none"), ranker=ranker, seed=1),
    )
    assert read(run, "relevance_evidence") == []


def test_an_empty_log_gives_an_empty_table(run: Run) -> None:
    put(run, "chunks", corpus(LOCKS))
    log(run, LOG_QUERIES.empty())
    assert ranking(run, embedded).funnel[0].rows_in == 0
    assert read(run, "relevance_evidence") == []


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The sample's chunks."""
    found = Run(str(tmp_path_factory.mktemp("sample") / "run"))
    execute(found, INGEST_DOCUMENTS, lambda _, out: ingest_documents(str(SAMPLE / "documents"), out, IngestSettings()))
    execute(found, CHUNK, lambda tables, out: chunk(tables, out, ChunkSettings()))
    return found


def sample_days(limit: int) -> list[pa.Table]:
    """Days of distinct queries of the sample's log."""
    seen: set[tuple[str, str]] = set()
    days = []
    for path in sorted((SAMPLE / "impressions").glob("*/*.csv"))[:3]:
        day, mine = date.fromisoformat(path.parent.name.removeprefix("date=")), []
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = row["tenant"] or "default", " ".join(row["query"].lower().split())
                if key not in seen and len(mine) < limit:
                    seen.add(key)
                    mine.append(key)
        days.append(
            pa.concat_tables(
                day_of(day, {hashlib.sha256(text.encode()).hexdigest()[:16]: text}, tenant) for tenant, text in mine
            )
        )
    return days


@pytest.mark.slow
def test_the_same_bytes_day_by_day_and_all_at_once(sample: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real parts; blocks are cut so small that each day has several."""
    days = sample_days(90)
    all_seven = dict(EMBEDDED)
    log(sample, *days)
    ranking(sample, embedded, k=3, t=10, retrievers=all_seven, version="at once")
    at_once = files(sample)
    rows = read(sample, "relevance_evidence")
    assert len(rows) > 0.9 * sum(day.num_rows for day in days)
    for row in rows:
        assert row["positive_id"] not in row["negative_ids"]  # type: ignore[operator]
        assert all(score <= row["positive_score"] for score in row["negative_scores"])  # type: ignore[attr-defined]
    for n in range(1, 4):
        log(sample, *days[:n])
        ranking(sample, embedded, k=3, t=10, retrievers=all_seven, version="day by day")
    assert files(sample) == at_once
    monkeypatch.setattr(of_a_day, "SEARCH_BLOCK", 17)
    monkeypatch.setattr(of_a_day, "QUERY_BLOCK", 5)
    log(sample, *reversed(days))
    ranking(sample, embedded, k=3, t=10, retrievers=all_seven, version="small blocks")
    assert files(sample) == at_once, "neither blocks nor the order of the parts matter"


@pytest.mark.slow
@pytest.mark.parametrize("name", EMBEDDED)
def test_a_query_has_the_same_list_whatever_block_it_comes_in(sample: Run, tmp_path: Path, name: str) -> None:
    texts = [text for day in sample_days(90) for text in day["text"].to_pylist()]
    mine = TenantChunks(sample.tables("chunks"), "default")
    retriever = EMBEDDED[name](Corpus(mine.batches, mine.n, tmp_path))
    whole = retriever.search(texts, 60)
    for size in (1, 7, QUERY_BLOCK):
        parts = [retriever.search(texts[start : start + size], 60) for start in range(0, len(texts), size)]
        np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), whole.rows)
        np.testing.assert_array_equal(np.concatenate([part.scores for part in parts]), whole.scores)
    assert not math.isnan(whole.scores[0, 0])
