import hashlib

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.judge.pairs import pair_blocks
from darklode.pipeline.judge.port import PAIRS, QUERY_BLOCK
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import put


def blocks(run: Run, tenant: str = "a") -> list[pa.Table]:
    tables = run.tables()
    return list(pair_blocks(tables, TenantChunks(tables, tenant)))


def test_a_pair_brings_its_texts_and_their_hashes(run: Run) -> None:
    put(run, "queries", queries("a", {"q1": "how?", "q2": "why?"}))
    put(run, "chunks", chunks("a", {"c1": "so", "c2": "thus"}, title=[None, "T"], heading=["H", None]))
    put(run, "pool", pool("a", [("q1", "c2"), ("q1", "c1"), ("q2", "c1")]))
    (block,) = blocks(run)
    assert block.schema.equals(PAIRS)
    assert block.select(["query_id", "chunk_id"]).to_pylist() == [
        {"query_id": "q1", "chunk_id": "c1"},
        {"query_id": "q1", "chunk_id": "c2"},
        {"query_id": "q2", "chunk_id": "c1"},
    ]
    assert block["query"].to_pylist() == ["how?", "how?", "why?"]
    assert block["text"].to_pylist() == ["so", "thus", "so"]
    assert block["title"].to_pylist() == [None, "T", None]
    assert block["heading"].to_pylist() == ["H", None, "H"]
    assert block["chunk_hash"].to_pylist() == ["so", "thus", "so"]
    assert block["query_hash"][2].as_py() == hashlib.sha256(b"why?").hexdigest()[:32]


def test_many_pairs_come_in_whole_queries_in_order_with_the_right_texts(run: Run) -> None:
    query_ids, chunk_ids = [f"q{n:03}" for n in range(300)], [f"c{n:05}" for n in range(20_000)]
    put(run, "queries", queries("a", {name: f"text of {name}" for name in reversed(query_ids)}))
    put(run, "chunks", chunks("a", {name: f"text of {name}" for name in reversed(chunk_ids)}))
    chosen = [
        (query, chunk_ids[(7 * n + 61 * place) % 20_000]) for n, query in enumerate(query_ids) for place in range(250)
    ]
    put(run, "pool", pool("a", chosen[::-1]))
    found = blocks(run)
    assert [len(block["query_id"].unique()) for block in found] == [QUERY_BLOCK] * 4 + [300 - 4 * QUERY_BLOCK]
    whole = pa.concat_tables(found)
    ids = list(zip(whole["query_id"].to_pylist(), whole["chunk_id"].to_pylist(), strict=True))
    assert ids == sorted(chosen)
    assert whole["text"].to_pylist() == [f"text of {chunk}" for _, chunk in ids]
    assert whole["query"].to_pylist() == [f"text of {query}" for query, _ in ids]


@pytest.mark.parametrize(("pair", "what"), [(("q9", "c1"), "query_id 'q9'"), (("q1", "c9"), "chunk_id 'c9'")])
def test_a_pool_that_names_what_its_tenant_does_not_have_is_an_error(
    run: Run, pair: tuple[str, str], what: str
) -> None:
    put(run, "queries", pa.concat_tables([queries("a", {"q1": "how?"}), queries("b", {"q9": "b's"})]))
    put(run, "chunks", pa.concat_tables([chunks("a", {"c1": "so"}), chunks("b", {"c9": "b's"})]))
    put(run, "pool", pool("a", [("q1", "c1"), pair]))
    with pytest.raises(ArtifactError, match=f"the pool has {what}, which is unknown in tenant 'a'"):
        blocks(run)


def test_a_tenant_without_a_pool_has_no_blocks(run: Run) -> None:
    put(run, "queries", queries("a", {"q1": "how?"}))
    put(run, "chunks", chunks("a", {"c1": "so"}))
    put(run, "pool", pool("a", [("q1", "c1")]))
    assert blocks(run, "b") == []
