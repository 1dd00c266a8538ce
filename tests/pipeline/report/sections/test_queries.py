"""Queries on the page: lengths, languages and clusters, before and after cleaning."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.schemas.tables import TABLES
from helpers.report_runs import shown
from helpers.runs import put


def test_query_lengths_before_and_after_cleaning(run: Run) -> None:
    """Cluster sampling comes last, so what it dropped had passed the rest."""
    raw = {"tenant": "a", "timestamp": None, "count": 1}
    texts = {"q1": "one", "q2": "two  words", "q3": "three words here", "q4": "w " * 50}
    rows = [raw | {"query_id": name, "text": text} for name, text in texts.items()]
    put(run, "raw_queries", pa.Table.from_pylist(rows, TABLES["raw_queries"].schema))
    kept = {"tenant": "a", "query_id": "q2", "text": "two words", "n_words": 2, "language": "en"}
    kept |= {"language_score": 0.5, "cluster_id": 4, "n_represented": 2}
    put(run, "cleaned_queries", pa.Table.from_pylist([kept], TABLES["cleaned_queries"].schema))
    dropped = [
        {"table": "raw_queries", "tenant": "a", "id": name, "stage": stage, "reason": reason, "represented_by": by}
        | {"payload": texts[name]}
        for name, stage, reason, by in (
            ("q1", "clean.length", "too short", None),
            ("q3", "clean.diversity", "cluster sampling", "q2"),
            ("q4", "clean.language", "language fr", None),
        )
    ]
    put(run, "rejects", pa.Table.from_pylist(dropped, TABLES["rejects"].schema))
    found = shown(run)
    assert found["query-length"].table.to_pylist() == [
        {"words": 1, "raw": 1, "cleaned": 0, "kept": 0},
        {"words": 2, "raw": 1, "cleaned": 1, "kept": 1},
        {"words": 3, "raw": 1, "cleaned": 1, "kept": 0},
        {"words": 31, "raw": 1, "cleaned": 0, "kept": 0},
    ]
    assert found["languages"].table.to_pylist() == [
        {"language": "en", "kept": 1, "dropped": 0},
        {"language": "fr", "kept": 0, "dropped": 1},
    ]
    (cluster,) = found["largest-clusters"].table.to_pylist()
    assert (cluster["raw_queries"], cluster["examples"]) == (2, ["two words", "three words here"])
