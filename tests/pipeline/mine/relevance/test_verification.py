"""A look at mined pairs by the judge: which are drawn, what a document is worth, what is asked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.mine.relevance.verification import PAIRS_PER_SOURCE_AND_TIER, VERIFY, verify
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.schemas.mined_tables import LOG_QUERIES, MINED_PAIRS
from darklode.schemas.mining import MiningSettings
from darklode.schemas.settings import ChunkSettings, IngestSettings
from helpers.judge_tables import chunks
from helpers.runs import SAMPLE, execute, put, read
from helpers.scripted_judge import RELEVANT, UNREADABLE, ScriptedJudge, from_table

FIRST = date(2026, 3, 1)
Pair = tuple[str, str, str, int]
"""Tenant, query_id, positive_id, day."""


def mined(
    run: Run, pairs: Sequence[Pair], source: str = "click_one_hop", negatives: Sequence[str | None] | None = None
) -> None:
    """Give the run mined pairs, and their queries, whose text is their id."""
    tenant, query, positive, day = (list(column) for column in zip(*pairs, strict=True))
    dates = [FIRST + timedelta(n) for n in day]
    columns = {"tenant": tenant, "query_id": query, "positive_id": positive, "date": dates}
    columns |= {"source": [source] * len(pairs), "negative_id": list(negatives or [None] * len(pairs))}
    put(run, "mined_pairs", MINED_PAIRS.rows(columns))
    named = sorted(set(zip(tenant, query, strict=True)))
    texts = {key: [q for _, q in named] for key in ("query_id", "text", "normal_form")}
    days = {"tenant": [one for one, _ in named], "date": [FIRST] * len(named)}
    put(run, "log_queries", LOG_QUERIES.rows(days | texts))


def documents(run: Run, docs: Mapping[str, int], tenants: Sequence[str] = ("a",)) -> None:
    """Give the run chunks: doc_id → how many, named DOC#00 and so on, of the text DOC 0 and so on."""
    tables = []
    for tenant in tenants:
        named = [(doc, n) for doc, count in docs.items() for n in range(count)]
        table = chunks(tenant, {f"{doc}#{n:02}": f"{doc} {n}" for doc, n in named})
        place = table.schema.get_field_index("doc_id")
        tables.append(table.set_column(place, table.schema.field("doc_id"), [[doc for doc, _ in named]]))
    put(run, "chunks", pa.concat_tables(tables))


def verified(
    run: Run,
    judge: Judge | Callable[[TenantChunks], Judge],
    share: float | None = 1,
    seed: int = 3,
    report: Callable[[int, int | None, str], None] = lambda *_: None,
) -> Manifest:
    judge_for = judge if not hasattr(judge, "judge_id") else lambda _tenant: judge
    settings = MiningSettings(verify_share=share)

    def work(tables: Tables, output: object) -> None:
        verify(tables, output, settings, judge_for=judge_for, seed=seed)  # type: ignore[arg-type]

    return run.execute(run.plan(VERIFY, {"share": share, "seed": seed}), work, report)


def files(run: Run) -> dict[str, bytes | None]:
    return {part.file: run.store.read(part.file) for part in run.manifests()["verify"].outputs["mined_verdicts"]}


def test_a_pair_that_two_sources_gave_has_the_same_verdict_for_both(run: Run) -> None:
    documents(run, {"d1": 2})
    pairs = [{"tenant": "a", "query_id": "q", "positive_id": "d1", "date": FIRST, "source": one} for one in ("x", "y")]
    mined(run, [("a", "q", "d1", 0)])
    put(run, "mined_pairs", pa.Table.from_pylist(pairs, MINED_PAIRS.schema))
    verified(run, ScriptedJudge(from_table({("q", "d1#01"): RELEVANT})))
    assert [(row["source"], row["relevant"]) for row in read(run, "mined_verdicts")] == [("x", True), ("y", True)]


def test_a_document_is_worth_its_best_chunk(run: Run) -> None:
    documents(run, {"d3": 2, "d1": 3, "d2": 2, "d4": 1})
    mined(run, [("a", "q1", "d1", 0), ("a", "q1", "d2", 0), ("a", "q1", "d3", 0), ("a", "q2", "d4", 0)])
    said = {("q1", "d1#01"): RELEVANT, ("q1", "d1#02"): UNREADABLE, ("q1", "d3#00"): UNREADABLE}
    judge = ScriptedJudge(from_table(said | {("q2", "d4#00"): {"relevant": True}}))
    manifest = verified(run, judge)
    rows = read(run, "mined_verdicts")
    assert [(row["query_id"], row["positive_id"], row["relevant"], row["source"]) for row in rows] == [
        ("q1", "d1", True, "click_one_hop"),
        ("q1", "d2", False, "click_one_hop"),
        ("q1", "d3", None, "click_one_hop"),
        ("q2", "d4", True, "click_one_hop"),
    ]
    assert [row["probability"] for row in rows] == pytest.approx([0.9, 0.1, 0.1, 1.0])
    assert {row["judge_id"] for row in rows} == {"scripted"}
    assert judge.asked == sorted(judge.asked), "by query, then chunk"
    assert manifest.facts == {"relevant": 2, "not_relevant": 1, "unreadable": 1}


def test_a_negative_is_looked_at_too_and_no_document_twice(run: Run) -> None:
    documents(run, {"d1": 1, "d2": 1})
    pairs: list[Pair] = [("a", "q", "d1", 0), ("a", "q", "d2", 0), ("a", "r", "d1", 0), ("a", "s", "lost", 0)]
    mined(run, pairs, negatives=["d2", "lost", None, "d1"])
    judge = ScriptedJudge(from_table({("q", "d1#00"): RELEVANT, ("q", "d2#00"): RELEVANT}))
    manifest = verified(run, judge)
    assert judge.asked == [("a", "q", "d1#00"), ("a", "q", "d2#00"), ("a", "r", "d1#00"), ("a", "s", "d1#00")]
    found = {row["positive_id"] + row["query_id"]: row for row in read(run, "mined_verdicts")}  # type: ignore[operator]
    assert {name: (row["relevant"], row["negative_id"], row["negative_relevant"]) for name, row in found.items()} == {
        "d1q": (True, "d2", True),
        "d2q": (True, "lost", None),
        "d1r": (False, None, None),
    }
    assert found["d1q"]["negative_probability"] == pytest.approx(0.9)
    assert (found["d2q"]["negative_probability"], found["d1r"]["negative_probability"]) == (None, None)
    assert manifest.funnel[0].dropped == {"document is gone": 1}


def test_a_document_nobody_could_read_has_neither_label_nor_probability(run: Run) -> None:
    documents(run, {"d": 2})
    mined(run, [("a", "q", "d", 0)])
    verified(run, ScriptedJudge(lambda _: UNREADABLE))
    (row,) = read(run, "mined_verdicts")
    assert (row["relevant"], row["probability"]) == (None, None)


def test_of_a_long_document_the_beginning_is_seen(run: Run) -> None:
    documents(run, {"before": 1, "long": 40, "z": 1})
    mined(run, [("a", "q", "long", 0)])
    judge = ScriptedJudge()
    verified(run, judge)
    assert [chunk_id for _, _, chunk_id in judge.asked] == [f"long#{n:02}" for n in range(16)]


def test_documents_and_tenants_that_are_gone_are_counted(run: Run) -> None:
    documents(run, {"d": 1})
    mined(run, [("a", "q", "d", 0), ("a", "q", "lost", 0), ("b", "q", "d", 0)])
    manifest = verified(run, ScriptedJudge())
    assert [(row["tenant"], row["positive_id"]) for row in read(run, "mined_verdicts")] == [("a", "d")]
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out, step.dropped) == (3, 1, {"document is gone": 2})
    documents(run, {"other": 1})
    assert verified(run, ScriptedJudge()).funnel[0].dropped == {"document is gone": 3}
    assert read(run, "mined_verdicts") == []


def test_a_query_that_its_tenant_does_not_have_is_an_error(run: Run) -> None:
    documents(run, {"d": 1}, ("a", "b"))
    mined(run, [("a", "q", "d", 0)])
    texts = {key: ["q"] for key in ("query_id", "text", "normal_form")}
    put(run, "log_queries", LOG_QUERIES.rows({"tenant": ["b"], "date": [FIRST]} | texts))
    with pytest.raises(ArtifactError, match="query_id 'q', which is unknown in tenant 'a'"):
        verified(run, ScriptedJudge())


def test_tenants_do_not_meet(run: Run) -> None:
    documents(run, {"d": 1}, ("a", "b"))
    mined(run, [("b", "q", "d", 0), ("a", "q", "d", 0)])
    judges = {"a": ScriptedJudge(lambda _: RELEVANT, "judge of a"), "b": ScriptedJudge(judge_id="judge of b")}
    verified(run, lambda tenant: judges[tenant.tenant])
    rows = [(row["tenant"], row["relevant"], row["judge_id"]) for row in read(run, "mined_verdicts")]
    assert rows == [("a", True, "judge of a"), ("b", False, "judge of b")]


MANY: list[Pair] = [("a", f"q{n:04}", f"d{n % 10}", n % 3) for n in range(1200)]


def drawn(run: Run) -> set[tuple[object, object]]:
    return {(row["query_id"], row["positive_id"]) for row in read(run, "mined_verdicts")}


def test_a_share_is_drawn_and_a_larger_one_holds_it(run: Run) -> None:
    documents(run, {f"d{n}": 1 for n in range(10)})
    mined(run, MANY)
    found = {}
    for share in (0, 0.1, 0.5, 1):
        verified(run, ScriptedJudge(), share)
        found[share] = drawn(run)
    assert not found[0]
    assert len(found[1]) == 1200
    assert 80 < len(found[0.1]) < 160
    assert 540 < len(found[0.5]) < 660
    assert found[0.1] < found[0.5] < found[1]
    verified(run, ScriptedJudge(), 0.1, seed=4)
    assert drawn(run) != found[0.1]
    mined(run, [*MANY, ("a", "r", "d1", 3)])
    verified(run, ScriptedJudge(), 0.1)
    assert drawn(run) - {("r", "d1")} == found[0.1], "a new pair draws no other"


def pairs_of(count: int) -> dict[str, list[object]]:
    """As columns: so many pairs of two sources, each of a query of its own."""
    names = [f"q{number:05}" for number in range(count)]
    sources = ["click_one_hop" if number % 4 else "relevance_multi_hop" for number in range(count)]
    dates = [FIRST + timedelta(number % 9) for number in range(count)]
    return {"tenant": ["a"] * count, "query_id": names, "positive_id": ["d"] * count, "date": dates, "source": sources}


def sampled(run: Run, count: int, judge: ScriptedJudge) -> dict[tuple[object, object], set[object]]:
    """The queries that were looked at, by source and tier, of a log with so many pairs."""
    pairs = pairs_of(count)
    put(run, "mined_pairs", MINED_PAIRS.rows(pairs))
    texts = {name: pairs[name] for name in ("tenant", "query_id", "date")} | {"text": pairs["query_id"]}
    texts["normal_form"] = pairs["query_id"]
    put(run, "log_queries", LOG_QUERIES.rows(texts))
    verified(run, judge, None)
    found: dict[tuple[object, object], set[object]] = {}
    for row in read(run, "mined_verdicts"):
        for tier in row["tiers"]:  # type: ignore[attr-defined]
            found.setdefault((row["source"], tier), set()).add(row["query_id"])
    return found


def test_each_source_and_tier_has_a_sample_of_its_own_that_hardly_changes(run: Run) -> None:
    documents(run, {"d": 1})
    judge = ScriptedJudge()
    first = sampled(run, 6000, judge)
    sizes = {key: len(queries) for key, queries in first.items()}
    sources = ("click_one_hop", "relevance_multi_hop")
    assert {sizes[source, tier] for source in sources for tier in ("median", "large")} == {PAIRS_PER_SOURCE_AND_TIER}
    assert all(0 < sizes[source, "small"] < PAIRS_PER_SOURCE_AND_TIER for source in sources), (
        "all there are of one query in 130"
    )
    assert len(judge.asked) == len(set().union(*first.values())) < 6 * PAIRS_PER_SOURCE_AND_TIER
    grown = sampled(run, 6200, ScriptedJudge())
    assert {key: len(queries) for key, queries in grown.items()}.items() >= {
        (source, "large"): PAIRS_PER_SOURCE_AND_TIER for source in sources
    }.items()
    kept = [len(first[key] & grown[key]) for key in first]
    assert all(kept[place] >= 0.9 * size for place, size in enumerate(sizes.values()))


def test_nights_draw_the_sample_of_one_run(run: Run) -> None:
    documents(run, {"d": 1})
    sampled(run, 900, ScriptedJudge())
    sampled(run, 1500, ScriptedJudge())
    other = Run(f"{run.store.url}-other")
    documents(other, {"d": 1})
    sampled(other, 1500, ScriptedJudge())
    assert files(run) == files(other)


def test_only_what_changed_is_asked_again(run: Run) -> None:
    documents(run, {f"d{n}": 1 for n in range(10)})
    mined(run, MANY)
    verified(run, ScriptedJudge())
    mined(run, [*MANY, *(("a", f"r{n}", "d1", 3) for n in range(5))])
    judge, told = ScriptedJudge(), list[tuple[int, int | None]]()
    verified(run, judge, report=lambda done, total, _: told.append((done, total)))
    assert {query for _, query, _ in judge.asked} == {f"r{n}" for n in range(5)}, "a night's pairs"
    assert told[-1] == (1205, 1205)
    documents(run, {f"d{n}": 1 for n in range(11)})
    same = ScriptedJudge()
    verified(run, same)
    assert same.asked == [], "a new document changes no pair"
    documents(run, {f"d{n}": 1 + (n == 4) for n in range(10)})
    other = ScriptedJudge()
    verified(run, other)
    assert ("a", "q0004", "d4#01") in other.asked
    verified(run, ScriptedJudge(judge_id="another"))
    assert {row["judge_id"] for row in read(run, "mined_verdicts")} == {"another"}


def test_a_kill_costs_a_block(run: Run) -> None:
    documents(run, {f"d{n}": 1 for n in range(10)})
    mined(run, MANY)
    with pytest.raises(ConnectionError):
        verified(run, ScriptedJudge(fail_at=5))
    judge = ScriptedJudge()
    verified(run, judge)
    assert len(judge.batches) == 2, "three days of 400 pairs are six blocks"
    again = files(run)
    other = Run(f"{run.store.url}-other")
    documents(other, {f"d{n}": 1 for n in range(10)})
    mined(other, MANY)
    verified(other, ScriptedJudge())
    assert files(other) == again


def test_no_pairs_give_an_empty_table(run: Run) -> None:
    documents(run, {"d": 1})
    put(run, "log_queries", LOG_QUERIES.empty())
    put(run, "mined_pairs", MINED_PAIRS.empty())
    assert verified(run, ScriptedJudge()).facts == {"relevant": 0, "not_relevant": 0, "unreadable": 0}
    assert read(run, "mined_verdicts") == []


def test_the_embedded_judge_confirms_a_titles_own_document(run: Run) -> None:
    """On the sample: a document's title as the query, against its own document and against another one."""
    execute(run, INGEST_DOCUMENTS, lambda _, out: ingest_documents(str(SAMPLE / "documents"), out, IngestSettings()))
    execute(run, CHUNK, lambda tables, out: chunk(tables, out, ChunkSettings()))
    known = [row for row in read(run, "documents") if row["title"]][:40]
    n = len(known)
    columns = {name: [row[name] for row in known] for name in ("tenant", "title", "doc_id")}
    texts = dict.fromkeys(("query_id", "text", "normal_form"), columns["title"])
    put(run, "log_queries", LOG_QUERIES.rows({"tenant": columns["tenant"], "date": [FIRST] * n} | texts))
    others = [*columns["doc_id"][n // 2 :], *columns["doc_id"][: n // 2]]
    pairs = {
        "tenant": columns["tenant"] * 2,
        "query_id": columns["title"] * 2,
        "positive_id": columns["doc_id"] + others,
        "source": ["click_one_hop"] * n + ["click_multi_hop"] * n,
        "date": [FIRST] * (2 * n),
    }
    put(run, "mined_pairs", MINED_PAIRS.rows(pairs))
    verified(run, lambda tenant: EmbeddedJudge(TermSpace(tenant.batches())))
    rows = read(run, "mined_verdicts")
    right, wrong = (
        sum(bool(row["relevant"]) for row in rows if row["source"] == source) / n
        for source in ("click_one_hop", "click_multi_hop")
    )
    assert right > wrong + 0.3
