"""Quepid's ratings: ratings.<split>.csv with the columns query, docid and rating."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.judgment_lists import JUDGMENT_TABLES, judgments
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import any_row, copy
from darklode.pipeline.prepare.split import SPLITS

# Quepid reads the header and the rows by line.
RATINGS_SQL = r"""
    SELECT trim(regexp_replace(text, '\s+', ' ', 'g')) AS query, item_id AS docid, relevance AS rating
    FROM judgments WHERE split = '{split}' ORDER BY query_id, docid
"""


def quepid(tables: Tables, folder: Path, *, level: str = "document") -> None:
    """Write the ratings of each split that has any, for the import of ratings into a case.

    Source: the CSV that Quepid's `Import ratings` takes: the header `query,docid,rating`.

    Raises:
        ExportError: as for `judgments`.
    """
    with judgments(tables, level) as connection:
        for split in SPLITS:
            query = RATINGS_SQL.format(split=split)
            if any_row(connection, query):
                copy(connection, query, folder / f"ratings.{split}.csv", "FORMAT csv, HEADER true")


KIND = Format(JUDGMENT_TABLES, quepid, test_labels=True, options=("level",))
