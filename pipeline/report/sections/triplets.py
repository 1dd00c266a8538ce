"""Report section of triplets: counts, a random sample, and the most doubtful ones."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.drawing import Quote, Quotes
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.passages import Key, Passages
from darklode.pipeline.report.source import ReportSource, thresholds

INITIAL_LIMIT = 1000
"""Verdicts that `most_doubtful` joins with the triplets in its first attempt."""
LIMIT_FACTOR = 100
"""Factor of the next attempt, if too few of them occur in a triplet. Neither changes the result, only the time."""

# margin: distance of the probability from the threshold, on the label's side; negative if it contradicts the label.
SMALLEST_MARGINS_SQL = """
    SELECT v.tenant, v.query_id, v.chunk_id, v.relevant, v.probability, t.threshold,
           CASE WHEN v.relevant THEN v.probability - t.threshold ELSE t.threshold - v.probability END AS margin
    FROM verdicts v JOIN thresholds t ON t.tenant IS NULL OR t.tenant = v.tenant
    JOIN queries q ON q.tenant = v.tenant AND q.query_id = v.query_id
    WHERE v.relevant IS NOT NULL AND v.probability IS NOT NULL AND q.split <> 'test'
    ORDER BY margin, v.tenant, v.query_id, v.chunk_id LIMIT $most
"""

DOUBTFUL_PAIRS_SQL = """
    SELECT n.*, min(t.triplet_id) AS triplet_id FROM smallest_margins n
    JOIN triplets t ON t.tenant = n.tenant AND t.query_id = n.query_id
        AND CASE WHEN n.relevant THEN t.positive_id = n.chunk_id ELSE list_contains(t.negative_ids, n.chunk_id) END
    GROUP BY ALL ORDER BY margin, n.tenant, n.query_id, n.chunk_id LIMIT $wanted
"""

DOUBTFUL_MINED_PAIRS_SQL = """
    SELECT v.tenant, v.query_id, v.positive_id AS chunk_id, true AS relevant, v.probability, threshold,
           v.probability - threshold AS margin, min(t.triplet_id) AS triplet_id
    FROM mined_verdicts v JOIN triplets t USING (tenant, query_id, positive_id), thresholds
    WHERE v.probability IS NOT NULL GROUP BY ALL ORDER BY margin, v.tenant, v.query_id, v.positive_id LIMIT $wanted
"""


def most_doubtful(source: ReportSource, connection: duckdb.DuckDBPyConnection, n_wanted: int) -> pa.Table:
    """Pairs of triplets with the smallest margin first.

    Each pair occurs once, with its first triplet. The pairs with the smallest margins are joined with the triplets in
    growing batches until enough are found, which avoids unnesting the negatives of all triplets; the result is exact.

    Args:
        source: the run; mined triplets need a row in `mined_verdicts`.
        connection: connection to its tables.
        n_wanted: maximum number of pairs.

    Returns:
        tenant, query_id, chunk_id, relevant, probability, threshold, margin, triplet_id.
    """
    connection.register("thresholds", thresholds(source))
    if source.mined:
        return connection.sql(DOUBTFUL_MINED_PAIRS_SQL, params={"wanted": n_wanted}).to_arrow_table()
    limit, n_pairs = INITIAL_LIMIT, source.tables.rows("verdicts")
    while True:
        connection.register(
            "smallest_margins", connection.sql(SMALLEST_MARGINS_SQL, params={"most": limit}).to_arrow_table()
        )
        rows: pa.Table = connection.sql(DOUBTFUL_PAIRS_SQL, params={"wanted": n_wanted}).to_arrow_table()
        if rows.num_rows == n_wanted or limit >= n_pairs:
            return rows
        limit *= LIMIT_FACTOR


N_SHOWN = 10
N_OPEN = 4
"""Random triplets that are shown at once, and twice the doubtful ones; the others are in a part to open."""
MAX_TEXT_CHARACTERS = 2000
MAX_NEGATIVES = 4

TRIPLET_SAMPLE_SQL = """
    SELECT tenant, triplet_id, 0 AS place FROM triplets
    ORDER BY md5(concat_ws(chr(0), $seed, tenant, triplet_id)), tenant, triplet_id LIMIT $wanted
"""

# Reads `selected_triplets` (tenant, triplet_id), which the caller registers: `_random` and `_doubtful`.
TRIPLET_TEXTS_SQL = f"""
    SELECT tenant, query_id, split, source, date, left(query, {MAX_TEXT_CHARACTERS}) AS query,
           left(positive, {MAX_TEXT_CHARACTERS}) AS positive, positive_id,
           list_transform(negatives[1:{MAX_NEGATIVES}], lambda text: left(text, {MAX_TEXT_CHARACTERS})) AS negatives,
           negative_ids[1:{MAX_NEGATIVES}] AS negative_ids, len(negatives) AS all_negatives, triplet_id
    FROM triplets SEMI JOIN selected_triplets USING (tenant, triplet_id)
"""

RANDOM_TRIPLETS_SQL = f"""
    SELECT * EXCLUDE (triplet_id) FROM ({TRIPLET_TEXTS_SQL})
    ORDER BY md5(concat_ws(chr(0), $seed, tenant, triplet_id))
"""

DOUBTFUL_TRIPLETS_SQL = f"""
    SELECT t.tenant, t.query_id, t.split, t.source, t.query,
           CASE WHEN selected.relevant THEN 'positive' ELSE 'negative' END AS doubtful,
           selected.probability, selected.threshold, selected.margin, selected.chunk_id,
           CASE WHEN NOT selected.relevant
                THEN left(uncut.negatives[list_position(uncut.negative_ids, selected.chunk_id)], {MAX_TEXT_CHARACTERS})
                END AS negative, t.positive, t.positive_id
    FROM selected_triplets selected JOIN ({TRIPLET_TEXTS_SQL}) t USING (tenant, triplet_id)
    JOIN triplets uncut USING (tenant, triplet_id)
    ORDER BY selected.margin, selected.tenant, selected.query_id, selected.chunk_id
"""


def _random(source: ReportSource) -> pa.Table:
    seed = str(source.settings.seed)
    with source.tables.connect(TRIPLET_SAMPLE_SQL + RANDOM_TRIPLETS_SQL) as connection:
        drawn = connection.sql(TRIPLET_SAMPLE_SQL, params={"seed": seed, "wanted": N_SHOWN}).to_arrow_table()
        connection.register("selected_triplets", drawn)
        rows: pa.Table = connection.sql(RANDOM_TRIPLETS_SQL, params={"seed": seed}).to_arrow_table()
        return rows


def _doubtful(source: ReportSource) -> pa.Table:
    with source.tables.connect(
        SMALLEST_MARGINS_SQL + DOUBTFUL_PAIRS_SQL + DOUBTFUL_MINED_PAIRS_SQL + DOUBTFUL_TRIPLETS_SQL
    ) as connection:
        connection.register("selected_triplets", most_doubtful(source, connection, N_SHOWN))
        rows: pa.Table = connection.sql(DOUBTFUL_TRIPLETS_SQL).to_arrow_table()
        return rows


def _quotes(table: pa.Table, source: ReportSource) -> list[Quotes]:
    rows = table.to_pylist()
    keys = [_key(row, document_id) for row in rows for document_id in (row["positive_id"], *row["negative_ids"])]
    passages = Passages(source, keys)
    return [Quotes([_quote(row, passages) for row in rows], N_OPEN)]


def _key(row: Mapping[str, Any], text: str) -> Key:
    return row["tenant"], row["query_id"], text


def _quote(row: dict[str, Any], passages: Passages) -> Quote:
    query, id_and_text = row["query"], zip(row["negative_ids"], row["negatives"], strict=True)
    positive = passages.text(_key(row, row["positive_id"]), query, row["positive"], "positive")
    negatives = [passages.text(_key(row, document_id), query, text, "negative") for document_id, text in id_and_text]
    n_more = row["all_negatives"] - len(negatives)
    if n_more:
        last = negatives[-1]
        negatives[-1] = replace(last, note=", ".join(filter(None, (last.note, f"and {number(n_more)} more negatives"))))
    return Quote(query, (row["tenant"], row["split"], row["source"]), [positive, *negatives[:1]], negatives[1:])


def _doubtful_notes(table: pa.Table, source: ReportSource) -> list[Quotes]:
    rows = table.to_pylist()
    passages = Passages(source, [_key(row, row[name]) for row in rows for name in ("chunk_id", "positive_id")])
    return [Quotes([_doubt(row, passages) for row in rows], N_OPEN // 2)]


def _doubt(row: dict[str, Any], passages: Passages) -> Quote:
    probability_text = f"probability {row['probability']:.4f}, threshold {row['threshold']:.4g}"
    tags = (row["tenant"], row["split"], row["source"], f"doubtful {row['doubtful']}")
    query, note = row["query"], probability_text if row["negative"] is None else ""
    texts = [passages.text(_key(row, row["positive_id"]), query, row["positive"], "positive", note)]
    if row["negative"] is not None:
        texts.insert(0, passages.text(_key(row, row["chunk_id"]), query, row["negative"], "negative", probability_text))
    return Quote(query, tags, texts)


SECTION = FigureSection(
    "triplets",
    "Triplets",
    (
        Figure(
            "random-triplets",
            "Ten random triplets",
            "Check whether the positive answers the query and the negative does not. The choice depends on the seed "
            "only.",
            _random,
            _quotes,
            ("triplets",),
            wide=True,
        ),
        Figure(
            "doubtful-triplets",
            "Ten most doubtful triplets",
            "Positives and negatives whose probability is closest to the threshold, or on its wrong side; smallest "
            "margin first.",
            _doubtful,
            _doubtful_notes,
            ("triplets", "verdicts"),
            wide=True,
        ),
        Figure(
            "doubtful-mined-triplets",
            "Ten most doubtful mined triplets",
            "Checked positives with the lowest probability according to the judge.",
            _doubtful,
            _doubtful_notes,
            ("triplets", "mined_verdicts"),
            wide=True,
        ),
        Figure(
            "triplets",
            "Triplets by split and source",
            "short rows have fewer hard negatives than triplets.num_negatives; missing negatives: total shortfall.",
            lambda source: statistics.triplets(source.tables, source.settings.triplets.num_negatives),
            needs=("triplets", "qrels"),
            wide=True,
        ),
        Figure(
            "held-out",
            "Held-out queries that share a positive with training",
            "A model may have memorized these positives: evaluate such queries separately. split.group_by can separate "
            "positives.",
            lambda source: statistics.held_out(source.tables),
            needs=("held_out",),
        ),
        Figure(
            "leakage",
            "Shared by training and validation",
            "split.group_by decides what is kept apart. Sessions and users are counted in at most the last 28 days of "
            "a log, by the searches that support triplets.",
            lambda source: statistics.leakage(source.tables),
            needs=("split_leakage",),
        ),
    ),
    of_labels=True,
)
