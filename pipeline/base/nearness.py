"""Which queries are near-duplicates: those that share a key.

A query has a key for its words, and one for its letters and for what is left of them without any one of them:

- words: the stems of its words without function words, in whatever order ("how do I reset passwords", "password
  reset");
- letters: all its letters and digits without blanks, so that two that differ by one letter more, less, other or moved
  share a key ("reset pasword", "login" and "log in"). Digits are never left out: PEL-1101 and PEL-1102 are not near.

To share a key is a matter of two queries alone: no third one, no later day and no threshold of a log's makes them near.
Sharing is looked up, not compared pair by pair, so the cost grows with the queries. Deletion neighbourhoods are those
of Bocek, Hunt and Stiller (2007), "Fast Similarity Search in Large Dictionaries"; a key stands for 63 bits of its MD5,
so that it may be kept: it is the same in every version of DuckDB.
"""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.pipeline.base.segmentation import spaced_column
from darklode.pipeline.base.terms import Analyzer

SHORTEST = 5
"""Letters of a query that may hold a slip of the keyboard; shorter ones are names too often (css, csv)."""

LONGEST = 200
"""Letters of a query that may hold one: its keys take the square of them, and a pasted log has thousands."""

_WORDS = r"""
    SELECT n, tenant, unnest(list_distinct(regexp_extract_all(text, '[\pL\pM\pN]+'))) AS word FROM {texts}
"""

_BY_WORDS = """
    SELECT n, concat_ws(chr(0), tenant, 'words', array_to_string(list_sort(list_distinct(
        coalesce(list(stem) FILTER (stem <> ''), list(word)))), ' ')) AS held
    FROM {words} JOIN {stems} USING (word) GROUP BY n, tenant
"""

_BY_LETTERS = rf"""
    WITH spelled AS (
        SELECT n, tenant, regexp_replace(text, '[^\pL\pM\pN]+', '', 'g') AS letters FROM {{texts}}
    )
    SELECT n, concat_ws(chr(0), tenant, 'letters', unnest(list_prepend(letters, CASE
        WHEN length(letters) BETWEEN {SHORTEST} AND {LONGEST} THEN list_transform(
            list_filter(range(1, length(letters) + 1), lambda i: NOT contains('0123456789', substr(letters, i, 1))),
            lambda i: left(letters, i - 1) || substr(letters, i + 1))
        ELSE [] END))) AS held
    FROM spelled WHERE letters <> ''
"""

_KEYS = f"""
    SELECT n, CAST(md5_number_lower(held) >> 1 AS BIGINT) AS key FROM (({_BY_WORDS}) UNION ALL ({_BY_LETTERS}))
"""


def near_keys(connection: duckdb.DuckDBPyConnection, queries: Relation) -> Relation:
    """The keys of some queries, as rows of n and key; two queries are near where they share one.

    Args:
        connection: holds `queries`.
        queries: n (a number of the caller's), tenant, text. A query without a letter or digit has no key; those of
            different tenants share none.
    """
    query_texts = connection.sql(f"SELECT n, tenant, text FROM {queries} ORDER BY n").to_arrow_table()
    plain = pc.utf8_lower(pc.utf8_normalize(query_texts["text"], form="NFKC"))
    texts = _register(connection, query_texts.set_column(2, "text", spaced_column(plain)))
    words = materialize(connection, _WORDS, texts=texts)
    stems = _register(connection, _stems(connection, words))
    keys = materialize(connection, _KEYS, texts=texts, words=words, stems=stems)
    drop(connection, words)
    for relation in (texts, stems):
        connection.unregister(relation.name)
    return keys


def _stems(connection: duckdb.DuckDBPyConnection, words: Relation) -> pa.Table:
    """Each word and its stem, "" for a function word."""
    distinct_words = connection.sql(f"SELECT DISTINCT word FROM {words} ORDER BY word").to_arrow_table()["word"]
    analyzer = Analyzer()
    return pa.table(
        {"word": distinct_words, "stem": pa.array(map(analyzer.stem, distinct_words.to_pylist()), pa.string())}
    )


def _register(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Relation:
    relation = Relation()
    connection.register(relation.name, rows)
    return relation
