"""MTEB's dataset: the configs corpus, queries and default (the judgments) as Parquet, with a card that lists them."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.kinds.beir import TITLE_SQL
from darklode.pipeline.export.writers import (
    copy_parquet,
    define_ids,
    human_labels_note,
    require_positives,
    write_card,
    write_id_map,
)
from darklode.pipeline.prepare.split import SPLITS

CORPUS_SQL = f"""
    SELECT exported(tenant, chunk_id) AS id, {TITLE_SQL} AS title, text FROM chunks ORDER BY tenant, chunk_id
"""

QUERIES_SQL = """
    SELECT exported(tenant, query_id) AS id, text FROM queries WHERE split = '{split}' ORDER BY tenant, query_id
"""

QRELS_SQL = """
    SELECT exported(tenant, query_id) AS "query-id", exported(tenant, chunk_id) AS "corpus-id", relevance AS score
    FROM qrels JOIN queries USING (tenant, query_id)
    WHERE split = '{split}' AND relevance > 0 ORDER BY tenant, query_id, chunk_id
"""

README = """\
# A retrieval task for MTEB

- `corpus`: id, title, text; one split, `test`, which serves every other.
- `queries`: id, text; `default`: query-id, corpus-id, score, positives only. Both by split.

```python
from datasets import load_dataset

corpus = load_dataset(".", "corpus", split="test")
```
"""


def mteb(tables: Tables, folder: Path) -> None:
    """Write `corpus/test.parquet`, `queries/<split>.parquet`, `default/<split>.parquet` and a README.md.

    A split without rows has no file. The corpus has one split because MTEB's reader takes a config's only split
    for any other. Source: the layout that `mteb.abstasks.retrieval_dataset_loaders.RetrievalDatasetLoader` (v2) reads.

    Raises:
        ExportError: no chunk is relevant to any query.
    """
    require_positives(tables)
    configs: dict[str, dict[str, str]] = {"corpus": {"test": "corpus/test.parquet"}, "queries": {}, "default": {}}
    with tables.connect() as connection:
        define_ids(connection)
        copy_parquet(connection, CORPUS_SQL, folder / "corpus" / "test.parquet")
        for split in SPLITS:
            for config, query in (("queries", QUERIES_SQL), ("default", QRELS_SQL)):
                copy_parquet(connection, query.format(split=split), folder / config / f"{split}.parquet")
                configs[config][split] = f"{config}/{split}.parquet"
        write_id_map(connection, folder)
        text = README + human_labels_note(connection)
    write_card(folder, configs, text, {"task_categories": ["text-retrieval"], "tags": ["mteb"]})


KIND = Format(("chunks", "queries", "qrels"), mteb, test_labels=True)
