"""Judgment lists of OpenSearch's Search Relevance Workbench: judgments.<split>.json."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.judgment_lists import JUDGMENT_TABLES, judgments, write_json_lists
from darklode.pipeline.export.kinds import Format

# Ratings are decimal numbers in strings.
RATINGS_SQL = """
    SELECT text AS query,
           list({{'docId': item_id, 'rating': CAST(CAST(relevance AS DOUBLE) AS VARCHAR)}} ORDER BY item_id) AS ratings
    FROM judgments WHERE split = '{split}' GROUP BY query_id, text ORDER BY query_id
"""

OPENING = """{{
"name": "darklode {split}",
"description": "Relevance judgments of the {split} split",
"type": "IMPORT_JUDGMENT",
"judgmentRatings": """


def search_relevance(tables: Tables, folder: Path, *, level: str = "document") -> None:
    """Write a request body per split for `PUT _plugins/_search_relevance/judgments`.

    Source: OpenSearch 3, Search Relevance Workbench, "Importing judgments".

    Raises:
        ExportError: as for `judgments`.
    """
    with judgments(tables, level) as connection:
        write_json_lists(connection, RATINGS_SQL, folder / "judgments.{split}.json", OPENING, "}\n")


KIND = Format(JUDGMENT_TABLES, search_relevance, test_labels=True, options=("level",))
