from collections import Counter

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.judge.probe.kinds import PROBE_KINDS
from darklode.pipeline.judge.probe.sample import Probe, draw_probes, pairs_of
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import put, written

N_QUERIES, N_CHUNKS = 30, 20
TENANTS = ("a", "b")


def tables(
    run: Run,
    tenants: tuple[str, ...] = TENANTS,
    n_chunks: int = N_CHUNKS,
    query: str = "query {}",
    chunk: str = "text {} with four words",
) -> Tables:
    """Each query has a positive, two negatives and an unreadable pair; the other chunks are not in its pool."""
    query_texts = {f"q{number:02}": query.format(number) for number in range(N_QUERIES)}
    chunk_texts = {f"c{number:02}": chunk.format(number) for number in range(n_chunks)}
    pairs = [
        (query_id, f"c{(number + step) % n_chunks:02}")
        for number, query_id in enumerate(query_texts)
        for step in range(4)
    ]
    labels = [True, False, False, None]
    put(run, "queries", pa.concat_tables(queries(tenant, query_texts) for tenant in tenants))
    put(run, "chunks", pa.concat_tables(chunks(tenant, chunk_texts) for tenant in tenants))
    put(run, "pool", pa.concat_tables(pool(tenant, pairs) for tenant in tenants))
    rows = [
        {"tenant": tenant, "query_id": query_id, "chunk_id": chunk_id, "judge_id": "j", "relevant": labels[number % 4]}
        for tenant in tenants
        for number, (query_id, chunk_id) in enumerate(pairs)
    ]
    written(run, "verdicts", rows)
    return run.tables("queries", "chunks", "pool", "verdicts")


def draw(run: Run, n: int = 10, seed: int = 1, tenants: tuple[str, ...] = TENANTS) -> dict[str, list[Probe]]:
    return draw_probes(tables(run, tenants), [*PROBE_KINDS], n, seed)


def labels_of(run: Run, probes: list[Probe]) -> Counter[bool | None]:
    rows = run.tables("verdicts").read("verdicts").to_pylist()
    label = {(row["tenant"], row["query_id"], row["chunk_id"]): row["relevant"] for row in rows}
    return Counter(label.get((probe.tenant, probe.query_id, probe.chunk_id)) for probe in probes)


def test_each_kind_is_drawn_from_the_pairs_that_it_needs_each_query_once(run: Run) -> None:
    drawn = draw(run)
    assert {kind: len(probes) for kind, probes in drawn.items()} == dict.fromkeys(PROBE_KINDS, 10)
    for probes in drawn.values():
        assert len({(probe.tenant, probe.query_id) for probe in probes}) == 10
    assert labels_of(run, drawn["planted instruction"]) == {False: 10}
    assert labels_of(run, drawn["empty chunk"]) == {True: 10}
    assert labels_of(run, drawn["repeated"]) == {True: 5, False: 5}
    assert labels_of(run, drawn["stuffed query"]) == {None: 10}, "not in the pool"
    assert all(probe.chunk_tenant == probe.tenant for probe in drawn["stuffed query"])
    assert all(probe.chunk_tenant != probe.tenant for probe in drawn["other tenant"])


def test_flip_rates_use_the_same_pairs(run: Run) -> None:
    drawn = draw(run)
    keys = [
        [(probe.tenant, probe.query_id, probe.chunk_id) for probe in drawn[kind]]
        for kind in ("repeated", "reworded query", "order of examples")
    ]
    assert keys[0] == keys[1] == keys[2]


def test_a_draw_depends_on_the_seed_only(run: Run) -> None:
    all_tables = tables(run)
    first, second, other = (draw_probes(all_tables, [*PROBE_KINDS], 10, seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_kinds_that_the_run_has_no_pairs_for_are_empty(run: Run) -> None:
    drawn = draw_probes(tables(run, ("a",), n_chunks=4), [*PROBE_KINDS], 10, 1)
    assert drawn["other tenant"] == drawn["stuffed query"] == []
    assert len(drawn["repeated"]) == 10


def test_unchanged_rows_are_those_of_judging_and_repeated_ones_have_other_ids(run: Run) -> None:
    drawn = draw(run)
    repeated = drawn["repeated"][0]
    unchanged, again = repeated.unchanged_row(), repeated.altered_row()
    assert unchanged["chunk_hash"] == unchanged["text"], "the content hash of the table"
    texts = ("query", "title", "heading", "text", "query_hash", "tenant")
    assert [again[name] for name in texts] == [unchanged[name] for name in texts]
    assert all(again[name] != unchanged[name] for name in ("query_id", "chunk_id", "chunk_hash"))
    planted = drawn["planted instruction"][0]
    assert planted.altered_row()["chunk_hash"] != planted.unchanged_row()["chunk_hash"]
    reworded = drawn["reworded query"][0]
    assert reworded.altered_row()["chunk_hash"] == reworded.unchanged_row()["chunk_hash"]
    assert reworded.altered_row()["query_hash"] != reworded.unchanged_row()["query_hash"]
    assert pairs_of([unchanged, again]).schema.equals(PAIRS)


def test_rules_are_used_in_turn(run: Run) -> None:
    variants = Counter(probe.variant for probe in draw(run)["planted instruction"])
    assert set(variants.values()) == {1}


def test_pairs_that_a_rule_leaves_as_they_are_are_no_probes(run: Run) -> None:
    """A positive of three words is no truncated chunk, and a query of one word has no halves to swap."""
    source = tables(run, ("a",), query="word{}", chunk="just {}  words")
    drawn = draw_probes(source, ["truncated chunk", "empty chunk", "reworded query", "repeated"], 10, 1)
    assert drawn["truncated chunk"] == []
    assert len(drawn["empty chunk"]) == len(drawn["repeated"]) == len(drawn["reworded query"]) == 10
    assert all(probe.altered.query != probe.unchanged.query for probe in drawn["reworded query"])
