"""Find queries with the same wording: equal except for typos, inflection and function words.

Vector distances cannot decide this: "cost in Iowa" is as near to "cost in Texas" as to itself with a typo. So all words
except function words must match in order, after stemming, and after correction of one edit if the documents do not
contain the word.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.segmentation import spaced_column
from darklode.pipeline.prepare.filters import flat

WORD_PATTERN = r"\pL+"
"""RE2 pattern of words that are looked up in documents."""

KNOWN_WORDS_SQL = f"""
    SELECT DISTINCT tenant, word FROM (
        SELECT tenant, unnest(regexp_extract_all(lower(concat_ws(' ', title, text)), '{WORD_PATTERN}')) AS word
        FROM {{documents}}
    ) SEMI JOIN query_words USING (tenant, word)
"""
"""The words of `query_words` (tenant, word) that documents contain."""

FUNCTION_WORDS = """
    a am an and are be can could did do does hello hey hi i is it its me my of or our please pls the to was we were
    will would you your
""".split()

MIN_TYPO_CHARACTERS = 5
"""Minimum length of a word that may be a typo; shorter words are often names (css, csv)."""

MAX_TYPO_CHARACTERS = 40
"""Maximum length of a word that may be, or have, a typo: the number of candidates is quadratic in the length."""

_QUERY_WORDS_SQL = r"""
    CREATE TEMP TABLE query_words AS
    SELECT row, tenant, uses, unnest(words) AS word, generate_subscripts(words, 1) AS word_index
    FROM (SELECT *, regexp_extract_all(text, '[\pL\pM\pN]+') AS words FROM queries)
"""
_VOCABULARY_SQL = f"""
    CREATE TEMP TABLE vocabulary AS
    SELECT tenant, word, uses, known.word IS NOT NULL AS known
    FROM (SELECT tenant, word, sum(uses) AS uses FROM query_words GROUP BY ALL)
    LEFT JOIN ({KNOWN_WORDS_SQL.format(documents="documents")}) AS known USING (tenant, word)
"""
# A word and all its variants without one letter; two words that are one edit apart share a key.
_DELETION_KEYS_SQL = f"""
    SELECT *, unnest(list_prepend(word, list_transform(
        range(1, length(word) + 1), lambda i: word[1:i - 1] || word[i + 1:]))) AS key
    FROM vocabulary WHERE length(word) <= {MAX_TYPO_CHARACTERS}
"""
_TYPOS_SQL = f"""
    SELECT tenant, typo.word,
           first(target.word ORDER BY target.known DESC, target.uses DESC, target.word) AS correction
    FROM (
        {_DELETION_KEYS_SQL} AND NOT known AND length(word) >= {MIN_TYPO_CHARACTERS}
        AND regexp_full_match(word, '\\pL+')
    ) AS typo
    JOIN ({_DELETION_KEYS_SQL}) AS target USING (tenant, key)
    WHERE (target.known OR target.uses > typo.uses) AND damerau_levenshtein(typo.word, target.word) = 1
    GROUP BY ALL
"""
_WORDINGS_SQL = """
    SELECT row, coalesce(string_agg(stem, ' ' ORDER BY word_index) FILTER (NOT is_function_word),
                         string_agg(stem, ' ' ORDER BY word_index)) AS wording,
           count(*) FILTER (is_typo) AS n_typos
    FROM query_words JOIN spelled_words USING (tenant, word) GROUP BY row
"""


def same_words(queries: pa.Table, tables: Tables) -> NDArray[np.int64]:
    """Row of the query that represents each query's wording, shape (n_queries,).

    Of queries with the same wording it is the one with the fewest typos, then the most frequent, then the first.

    Args:
        queries: queries with tenant, text and n_represented.
        tables: holds `documents`; a word that they contain is not a typo.
    """
    n = queries.num_rows
    text = pc.utf8_lower(pc.utf8_normalize(flat(spaced_column(queries["text"])), form="NFKC"))
    with tables.connect() as connection:
        columns = {"row": np.arange(n), "tenant": queries["tenant"], "uses": queries["n_represented"], "text": text}
        connection.register("queries", pa.table(columns))
        for statement in (_QUERY_WORDS_SQL, _VOCABULARY_SQL):
            connection.execute(statement)
        typos = connection.sql(_TYPOS_SQL).to_arrow_table()
        vocabulary = connection.sql("SELECT tenant, word FROM vocabulary").to_arrow_table()
        connection.register("spelled_words", _apply_spelling(vocabulary, typos))
        wordings = connection.sql(_WORDINGS_SQL).to_arrow_table().sort_by("row")
    return _representatives(queries, wordings)


def _apply_spelling(vocabulary: pa.Table, typos: pa.Table) -> pa.Table:
    """For each word: its stem after correction, whether it is a function word, and whether it was a typo."""
    corrected = vocabulary.join(typos, ["tenant", "word"])
    spelled = pc.coalesce(corrected["correction"], corrected["word"])
    stems = pa.array(Stemmer.Stemmer("english", 0).stemWords(spelled.to_pylist()), pa.string())
    is_function_word = pc.is_in(spelled, pa.array(FUNCTION_WORDS))
    columns = {
        "tenant": corrected["tenant"],
        "word": corrected["word"],
        "stem": stems,
        "is_function_word": is_function_word,
    }
    return pa.table(columns | {"is_typo": pc.is_valid(corrected["correction"])})


def _representatives(queries: pa.Table, wording_rows: pa.Table) -> NDArray[np.int64]:
    """Row of the representative of each query; a query without words represents itself.

    Args:
        queries: all queries.
        wording_rows: row, wording and n_typos of each query with words.
    """
    representatives = np.arange(queries.num_rows)
    rows = wording_rows["row"].to_numpy()
    tenants = queries["tenant"].take(wording_rows["row"])
    wordings = pc.binary_join_element_wise(tenants, wording_rows["wording"], "\x00")
    codes = flat(wordings).dictionary_encode().indices.to_numpy()
    uses = queries["n_represented"].to_numpy()[rows]
    order = np.lexsort((rows, -uses, wording_rows["n_typos"].to_numpy(), codes))
    group_starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    best_row = np.empty(codes.max(initial=-1) + 1, np.int64)
    best_row[codes[order[group_starts]]] = rows[order[group_starts]]
    representatives[rows] = best_row[codes]
    return representatives
