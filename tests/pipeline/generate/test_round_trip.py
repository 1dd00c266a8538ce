"""A query stays where a retriever finds the text that it was written for."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.generate.round_trip import ROUND_TRIP_STAGE, round_trip
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read

QUERY = {
    "tenant": "t", "text": "how", "n_words": 1, "language": "en", "language_score": 1.0, "cluster_id": 0,
    "n_represented": 1, "split": "train",
}  # fmt: skip
RANKS = {"near": (3, 40), "far": (30, 40), "elsewhere": (1, 1)}


@pytest.mark.parametrize(("depth", "kept"), [(2, []), (3, ["near"]), (30, ["far", "near"])])
def test_the_pool_is_each_query_with_its_own_text(tmp_path: Path, depth: int, kept: list[str]) -> None:
    run = Run(str(tmp_path))
    put(run, "queries", pa.Table.from_pylist([QUERY | {"query_id": one} for one in RANKS], TABLES["queries"].schema))
    written = [
        {"tenant": "t", "query_id": one, "chunk_id": "c", "text": "how", "error": None, "self_contained": None}
        for one in RANKS
    ]
    put(run, "written_queries", pa.Table.from_pylist(written, TABLES["written_queries"].schema))
    ranked = [
        {"tenant": "t", "query_id": one, "retriever": name, "rank": rank, "score": 1.0,
         "chunk_id": "other" if one == "elsewhere" else "c"}
        for one, ranks in RANKS.items()
        for name, rank in zip(("bm25", "dense"), ranks, strict=True)
    ]  # fmt: skip
    put(run, "rankings", pa.Table.from_pylist(ranked, TABLES["rankings"].schema))
    manifest = execute(run, ROUND_TRIP_STAGE, lambda tables, output: round_trip(tables, output, depth=depth))
    rows = read(run, "pool") if kept else []
    assert [(row["query_id"], row["chunk_id"]) for row in rows] == [(one, "c") for one in kept]
    assert sum(manifest.funnel[0].dropped.values()) == len(RANKS) - len(kept)
