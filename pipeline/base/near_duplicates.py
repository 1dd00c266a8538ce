"""Near-duplicate queries: two queries are near-duplicates if they share a key.

A query has one key for its words, and one for its letters and for each deletion of a single letter:

- words: stems without function words, in any order ("how do I reset passwords", "password reset");
- letters: letters and digits without spaces, so that queries with one letter more, less, replaced or transposed share a
  key ("reset pasword", "login" and "log in"). Digits are never deleted: PEL-1101 and PEL-1102 are distinct.

Whether two queries share a key depends on these two only: no third query, later day or threshold changes it. Keys are
looked up, not compared pairwise, so cost grows linearly with queries. Deletion neighborhoods are those of Bocek, Hunt
and Stiller (2007), "Fast Similarity Search in Large Dictionaries". A key is 63 bits of an MD5, which is the same in
every version of DuckDB, so keys can be stored.
"""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.pipeline.base.segmentation import spaced_column
from darklode.pipeline.base.terms import Analyzer

MIN_LETTERS = 5
"""Minimum letters of a query for letter keys: shorter ones are often names (css, csv)."""

MAX_LETTERS = 200
"""Maximum letters of a query for letter keys, whose total size is quadratic in the length."""

_QUERY_WORDS_SQL = r"""
    SELECT n, tenant, unnest(list_distinct(regexp_extract_all(text, '[\pL\pM\pN]+'))) AS word FROM {texts}
"""

_WORD_KEY_TEXTS_SQL = """
    SELECT n, concat_ws(chr(0), tenant, 'words', array_to_string(list_sort(list_distinct(
        coalesce(list(stem) FILTER (stem <> ''), list(word)))), ' ')) AS key_text
    FROM {words} JOIN {stems} USING (word) GROUP BY n, tenant
"""

_LETTER_KEY_TEXTS_SQL = rf"""
    WITH letter_strings AS (
        SELECT n, tenant, regexp_replace(text, '[^\pL\pM\pN]+', '', 'g') AS letters FROM {{texts}}
    )
    SELECT n, concat_ws(chr(0), tenant, 'letters', unnest(list_prepend(letters, CASE
        WHEN length(letters) BETWEEN {MIN_LETTERS} AND {MAX_LETTERS} THEN list_transform(
            list_filter(range(1, length(letters) + 1), lambda i: NOT contains('0123456789', substr(letters, i, 1))),
            lambda i: left(letters, i - 1) || substr(letters, i + 1))
        ELSE [] END))) AS key_text
    FROM letter_strings WHERE letters <> ''
"""

_KEYS_SQL = f"""
    SELECT n, CAST(md5_number_lower(key_text) >> 1 AS BIGINT) AS key
    FROM (({_WORD_KEY_TEXTS_SQL}) UNION ALL ({_LETTER_KEY_TEXTS_SQL}))
"""


def near_keys(connection: duckdb.DuckDBPyConnection, queries: Relation) -> Relation:
    """Compute the near-duplicate keys of queries, as a relation with the columns n and key.

    A query without letters and digits has no key. Keys of different tenants never match.

    Args:
        connection: DuckDB connection that holds `queries`.
        queries: relation with the columns n (a number chosen by the caller), tenant and text.
    """
    query_texts = connection.sql(f"SELECT n, tenant, text FROM {queries} ORDER BY n").to_arrow_table()
    normalized = pc.utf8_lower(pc.utf8_normalize(query_texts["text"], form="NFKC"))
    texts = _register(connection, query_texts.set_column(2, "text", spaced_column(normalized)))
    words = materialize(connection, _QUERY_WORDS_SQL, texts=texts)
    stems = _register(connection, _stems(connection, words))
    keys = materialize(connection, _KEYS_SQL, texts=texts, words=words, stems=stems)
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
    """Register an Arrow table under a unique name."""
    relation = Relation()
    connection.register(relation.name, rows)
    return relation
