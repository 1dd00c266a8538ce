"""Near queries: those that share rare terms, of the same tenant."""

from pathlib import Path

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.browse.catalogue import open_catalogue
from darklode.pipeline.browse.related_queries import SimilarQueries
from darklode.schemas.tables import TABLES
from helpers.runs import put

TEXTS = [
    "rotate the webhook key",
    "webhook key rotation",
    "key",
    "refund an invoice",
    "how do I",
    "webhook key rotation",
]
KNOWN = {"n_words": 1, "language": "en", "language_score": 1, "cluster_id": 0, "n_represented": 1, "split": "train"}


def test_the_nearest_come_first_and_other_tenants_never(folder: Path) -> None:
    run = Run(str(folder))
    tenants = ["a"] * 5 + ["b"]
    rows = [
        KNOWN | {"tenant": tenant, "query_id": f"q{number}", "text": text}
        for number, (tenant, text) in enumerate(zip(tenants, TEXTS, strict=True))
    ]
    put(run, "queries", pa.Table.from_pylist(rows, TABLES["queries"].schema))
    with open_catalogue(run) as catalogue:
        near = SimilarQueries(catalogue, Analyzer())
        first = near.similar(1, 5)
        assert [one["query_id"] for one in first] == ["q1", "q2"]
        assert first[0]["similarity"] > 0.99 > first[1]["similarity"] > 0
        assert [one["query_id"] for one in near.similar(1, 1)] == ["q1"]
        assert near.similar(4, 5) == near.similar(5, 5) == near.similar(6, 5) == []
