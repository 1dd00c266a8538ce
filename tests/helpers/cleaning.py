"""A query log through the cleaning stage, with every filter off that a test does not ask for."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.prepare.clean import CLEAN, clean
from darklode.schemas.settings import CleanSettings
from darklode.schemas.tables import RAW_QUERIES
from helpers.runs import documents, execute, put, read

OPEN = {
    "noise": False,
    "min_percentile": 0,
    "max_percentile": 100,
    "language": None,
    "deduplicate": False,
    "max_per_cluster": 0,
}


def raw(texts: list[str], tenants: list[str] | None = None) -> pa.Table:
    n = len(texts)
    ids = [f"q{i:05d}" for i in range(n)]
    return RAW_QUERIES.rows({"tenant": tenants or ["default"] * n, "query_id": ids, "text": texts, "count": [1] * n})


DOCUMENTS = documents(
    doc_id=["keys", "deliveries"],
    text=[
        "How to rotate a signing secret. To reset your password, open the settings of your account.",
        "Garage door seals and other orders: a delivery is sent to each webhook, and you can delete a route.",
    ],
)


def cleaned(
    run: Run,
    texts: list[str],
    tenants: list[str] | None = None,
    *,
    corpus: pa.Table = DOCUMENTS,
    **options: object,
) -> Manifest:
    put(run, "raw_queries", raw(texts, tenants))
    put(run, "documents", corpus)
    chosen = CleanSettings.model_validate(OPEN | options)
    return execute(run, CLEAN, lambda tables, output: clean(tables, output, chosen, seed=1))


def texts_of(run: Run) -> list[object]:
    return [row["text"] for row in read(run, "cleaned_queries")]


def reasons(run: Run) -> dict[object, object]:
    return {row["payload"]: row["reason"] for row in read(run, "rejects")}
