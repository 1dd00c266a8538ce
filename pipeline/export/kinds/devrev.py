"""DevRev-Search's layout: annotated queries, the knowledge base, and test queries whose labels are withheld."""

from pathlib import Path

import duckdb

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.kinds.beir import TITLE_SQL
from darklode.pipeline.export.writers import (
    copy_parquet,
    define_ids,
    human_labels_note,
    require,
    write_card,
    write_id_map,
)

FILES = {
    "annotated_queries": {"train": "annotated_queries.parquet"},
    "knowledge_base": {"corpus": "knowledge_base.parquet"},
    "test_queries": {"test": "test_queries.parquet"},
}

KNOWLEDGE_BASE_SQL = f"""
    SELECT exported(tenant, chunk_id) AS id, text, {TITLE_SQL} AS title FROM chunks ORDER BY tenant, chunk_id
"""

CREATE_POSITIVES = """
    CREATE TEMP VIEW positives AS
    FROM qrels JOIN (SELECT tenant, query_id, text AS query, split FROM queries) USING (tenant, query_id)
    WHERE relevance > 0
"""

ANNOTATED_QUERIES_SQL = f"""
    SELECT exported(tenant, query_id) AS query_id, query, retrievals FROM (
        SELECT tenant, query_id, query, list({{
            'id': exported(tenant, chunk_id), 'text': text, 'title': {TITLE_SQL}
        }} ORDER BY relevance DESC, chunk_id) AS retrievals
        FROM positives JOIN chunks USING (tenant, chunk_id)
        WHERE split <> 'test' GROUP BY tenant, query_id, query
    )
    ORDER BY tenant, query_id
"""

TEST_QUERIES_SQL = """
    SELECT exported(tenant, query_id) AS query_id, text AS query
    FROM queries SEMI JOIN positives USING (tenant, query_id) WHERE queries.split = 'test' ORDER BY tenant, query_id
"""

OMITTED_COUNT_SQL = "SELECT count(*) FROM queries ANTI JOIN positives USING (tenant, query_id)"

README = """\
# A search benchmark in the layout of DevRev-Search

- `annotated_queries` (train): query_id, query, retrievals: the golden chunks as a list of id, text, title.
- `knowledge_base` (corpus): id, text, title of every chunk.
- `test_queries` (test): query_id, query; their labels are withheld.

{n_omitted} queries without a golden chunk are omitted.

```python
from datasets import load_dataset

knowledge_base = load_dataset(".", "knowledge_base", split="corpus")
```
"""


def devrev(tables: Tables, folder: Path) -> None:
    """Write the annotated queries (train and validation), the chunks, the test queries without labels, and a README.md.

    The README counts the queries that are omitted because no chunk is relevant to them. Source: DevRev-Search, A.1,
    and the files and columns of the dataset `devrev/search`.

    Raises:
        ExportError: no chunk is relevant to a query of the train or validation split.
    """
    message = "the run has no positives outside its test split; check the table `qrels`"
    labelled = "relevance > 0 AND (tenant, query_id) IN (SELECT (tenant, query_id) FROM queries WHERE split <> 'test')"
    require(tables, "qrels", labelled, message)
    with tables.connect() as connection:
        define_ids(connection)
        connection.execute(CREATE_POSITIVES)
        copy_parquet(connection, ANNOTATED_QUERIES_SQL, folder / "annotated_queries.parquet")
        copy_parquet(connection, KNOWLEDGE_BASE_SQL, folder / "knowledge_base.parquet")
        copy_parquet(connection, TEST_QUERIES_SQL, folder / "test_queries.parquet")
        write_id_map(connection, folder)
        text = README.format(n_omitted=_count(connection, OMITTED_COUNT_SQL)) + human_labels_note(connection)
        write_card(folder, FILES, text, {"task_categories": ["text-retrieval"]})


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    count: int = connection.execute(query).fetchall()[0][0]
    return count


KIND = Format(("chunks", "queries", "qrels"), devrev)
