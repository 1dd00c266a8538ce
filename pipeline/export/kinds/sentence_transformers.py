"""Parquet for sentence-transformers, which uses columns as inputs by their order: there are no other columns."""

from pathlib import Path

import duckdb

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import copy_parquet, require_negatives, write_card

SPLITS = ("train", "validation")

TRIPLETS_SQL = """
    SELECT anchor, positive, negative FROM (
        SELECT tenant, query_id, triplet_id, query AS anchor, positive,
               unnest(negatives) AS negative, generate_subscripts(negatives, 1) AS place
        FROM triplets WHERE split = '{split}'
    )
    ORDER BY tenant, query_id, triplet_id, place
"""

N_TUPLES_SQL = """
    SELECT query AS anchor, positive, {negatives}
    FROM triplets WHERE split = '{split}' AND len(negatives) >= {n}
    ORDER BY tenant, query_id, triplet_id
"""

# The 10th percentile of the number of negatives: at least 90 % of the rows have as many.
N_NEGATIVES_SQL = """
    WITH counts AS (SELECT len(negatives) AS n FROM triplets WHERE len(negatives) > 0)
    SELECT n, (SELECT count(*) FROM counts) AS rows FROM counts
    ORDER BY n LIMIT 1 OFFSET (SELECT count(*) // 10 FROM counts)
"""

README = """\
# Triplets for sentence-transformers

- `triplet/`: anchor, positive, negative; one row per negative.
- `n-tuple/`: anchor, positive, negative_1 to negative_{n}, hardest first. {n} is the largest number that at least 90 %
  of the rows have; {short} of {rows} rows have fewer and are in `triplet/` only.

Positives without any negative ({n_omitted}) are in neither.

```python
from datasets import load_dataset

train = load_dataset("parquet", data_files="triplet/train.parquet", split="train")
```
"""


def sentence_transformers(tables: Tables, folder: Path) -> None:
    """Write `triplet/<split>.parquet` and `n-tuple/<split>.parquet` for each split with rows, and a README.md.

    The README gives the width of the n-tuples and the number of rows that have too few negatives for them.

    Raises:
        ExportError: no triplet has a negative.
    """
    require_negatives(tables)
    with tables.connect() as connection:
        n, rows = connection.execute(N_NEGATIVES_SQL).fetchall()[0]
        negatives = ", ".join(f"negatives[{number}] AS negative_{number}" for number in range(1, n + 1))
        for split in SPLITS:
            copy_parquet(connection, TRIPLETS_SQL.format(split=split), folder / "triplet" / f"{split}.parquet")
            query = N_TUPLES_SQL.format(split=split, negatives=negatives, n=n)
            copy_parquet(connection, query, folder / "n-tuple" / f"{split}.parquet")
        _readme(connection, folder, n, rows)


def _readme(connection: duckdb.DuckDBPyConnection, folder: Path, n: int, rows: int) -> None:
    counts = "SELECT count(*) FILTER (len(negatives) BETWEEN 1 AND ? - 1), count(*) FILTER (len(negatives) = 0)"
    short, n_omitted = connection.execute(f"{counts} FROM triplets", [n]).fetchall()[0]
    text = README.format(n=n, short=short, rows=rows, n_omitted=n_omitted)
    configs = {kind: {split: f"{kind}/{split}.parquet" for split in SPLITS} for kind in ("triplet", "n-tuple")}
    write_card(folder, configs, text)


KIND = Format(("triplets",), sentence_transformers)
