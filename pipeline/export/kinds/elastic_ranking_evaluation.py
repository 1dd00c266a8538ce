"""Requests of Elasticsearch's ranking evaluation: rank_eval.<split>.json."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.duckdb_views import literal
from darklode.pipeline.export.judgment_lists import JUDGMENT_TABLES, judgments, write_json_lists
from darklode.pipeline.export.kinds import Format

REQUESTS_SQL = """
    SELECT query_id AS id, {{'query': {{'multi_match': {{'query': text}}}}}} AS request,
           list({{'_index': INDEX, '_id': item_id, 'rating': relevance}} ORDER BY item_id) AS ratings
    FROM judgments WHERE split = '{split}' GROUP BY query_id, text ORDER BY query_id
"""

CLOSING = """,
"metric": {"dcg": {"k": 10, "normalize": true}}}
"""


def elastic_ranking_evaluation(
    tables: Tables, folder: Path, *, level: str = "document", index: str = "documents"
) -> None:
    """Write a request body per split for `POST /INDEX/_rank_eval`, which OpenSearch takes, too.

    Each request searches all fields (`multi_match`); the metric is nDCG@10. Replace both by what you measure.

    Source: Elasticsearch 8, "Ranking evaluation API"; OpenSearch 3, "Ranking Evaluation API".

    Args:
        tables: a run's.
        folder: an empty folder.
        level: what the ratings are about.
        index: name of the index that holds the rated documents.

    Raises:
        ExportError: as for `judgments`.
    """
    query = REQUESTS_SQL.replace("INDEX", literal(index).replace("{", "{{").replace("}", "}}"))
    with judgments(tables, level) as connection:
        write_json_lists(connection, query, folder / "rank_eval.{split}.json", '{{"requests": ', CLOSING)


KIND = Format(JUDGMENT_TABLES, elastic_ranking_evaluation, test_labels=True, options=("level", "index"))
