"""Check that triplets are in the folder of their tenant, source, split and day, and have the right id.

Versions before 0.1.0 stored these in folder names only (`tenant=acme/…`), and some rows were in the folder of another
tenant or source.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.artifacts.merged_files import own_partition
from darklode.pipeline.base.artifacts.stage import partition_of, partition_values
from darklode.schemas.tables import TRIPLETS

TRIPLET_ID_SQL = "substr(sha256(concat_ws(chr(0), {of}tenant, {of}query_id, {of}positive_id, {of}source)), 1, 24)"

MISPLACED = "belong to another tenant, source, split or day than their folder"

REBUILD_TRIPLETS = (
    "run `darklode mine` on this run again to rewrite them, then recreate its exports, adapters and towers"
)

COUNT_MISPLACED_SQL = f"""
    SELECT count(*) FROM folder_rows WHERE {{differs}} OR triplet_id <> {TRIPLET_ID_SQL.format(of="")}
"""


@dataclass(frozen=True)
class MisplacedTriplets:
    """A file with triplets of another tenant, source, split or day than its folder.

    Attributes:
        file: path of the file in the run.
        misplaced: number of rows in the wrong folder, or with a wrong id.
        rows: number of all rows.
    """

    file: str
    misplaced: int
    rows: int


def misplaced_triplets(run: Run) -> Iterator[MisplacedTriplets]:
    """Yield the files of a run's triplets with rows of another folder.

    Raises:
        ArtifactError: a file is damaged.
    """
    tables = run.tables()
    parts = [part for part in run.parts().get(TRIPLETS.name, []) if part.rows and _folder_values(own_partition(part))]
    for part, rows in zip(parts, tables.iterate_parts(parts), strict=True):
        if n_misplaced := _count_misplaced(_folder_values(own_partition(part)), rows):
            yield MisplacedTriplets(part.file, n_misplaced, part.rows)


def has_old_layout(run: Run) -> bool:
    """Whether the triplets' folders have Hive names, as in earlier versions."""
    return any("=" in partition_of(part.file) for part in run.parts().get(TRIPLETS.name, []))


def _folder_values(partition: str) -> dict[str, str]:
    """Parse the column values named by folders of either form; none for plain split names of a build."""
    hive_parts = (folder.partition("=") for folder in partition.split("/") if "=" in folder)
    return {column: unquote(value) for column, _, value in hive_parts} or partition_values(partition)


def _count_misplaced(folder_values: dict[str, str], rows: pa.Table) -> int:
    """Count the rows that differ from their folder in a column or in their id."""
    checked = rows.select(["triplet_id", "query_id", "positive_id"])
    for column, value in folder_values.items():
        actual = rows[column] if column in rows.column_names else pa.repeat(value, rows.num_rows)
        checked = checked.append_column(column, actual)
    differs = [f"CAST({column} AS VARCHAR) IS DISTINCT FROM ${column}" for column in folder_values]
    with scratch() as connection:
        connection.register("folder_rows", checked)
        query = COUNT_MISPLACED_SQL.format(differs=" OR ".join(["false", *differs]))
        return int(connection.sql(query, params=folder_values).fetchall()[0][0])
