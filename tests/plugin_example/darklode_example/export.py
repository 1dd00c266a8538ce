"""An export format: the relevant pairs as one CSV file."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import copy, require_positives

PAIRS = "SELECT tenant, query_id, chunk_id FROM qrels WHERE relevance > 0 ORDER BY tenant, query_id, chunk_id"


def pairs_csv(tables: Tables, folder: Path) -> None:
    require_positives(tables)
    with tables.connect() as connection:
        copy(connection, PAIRS, folder / "pairs.csv", "FORMAT csv, HEADER")


PAIRS_CSV = Format(("chunks", "queries", "qrels"), pairs_csv, test_labels=True)
