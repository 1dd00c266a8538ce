"""Report section of the queries: length, language and clusters."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.segmentation import count_words
from darklode.pipeline.report.charts import Histogram, histograms, integer_bins, stacked_bars
from darklode.pipeline.report.drawing import Chart, Quote, Quotes
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.passages import plain
from darklode.pipeline.report.source import ReportSource

MAX_WORDS = 30
"""Longer queries share one bin."""
MAX_TEXT_CHARACTERS = 300

SAMPLED_OUT_QUERIES_SQL = "SELECT payload FROM rejects WHERE stage = 'clean.diversity' AND payload IS NOT NULL"

LANGUAGES_SQL = """
    WITH query_languages AS (
        SELECT language, true AS kept FROM cleaned_queries UNION ALL
        SELECT substr(reason, 10), false FROM rejects WHERE stage = 'clean.language' AND reason LIKE 'language %'
    )
    SELECT language, count(*) FILTER (kept) AS kept, count(*) FILTER (NOT kept) AS dropped
    FROM query_languages GROUP BY language ORDER BY count(*) DESC, language
"""

CLUSTER_SIZES_SQL = """
    WITH sizes AS (
        SELECT CAST(sum(n_represented) AS BIGINT) AS n FROM cleaned_queries GROUP BY tenant, cluster_id
    ), bins AS (FROM (VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, 999),
                             (1000, 9223372036854775807)) AS t(low, high))
    SELECT CASE WHEN low = high THEN CAST(low AS VARCHAR) WHEN low = 1000 THEN '1,000 and more'
           ELSE low || '–' || high END AS raw_queries,
           count(*) AS clusters, CAST(sum(n) AS BIGINT) AS together
    FROM sizes JOIN bins ON n BETWEEN low AND high GROUP BY low, high ORDER BY low
"""

LARGEST_CLUSTERS_SQL = f"""
    WITH sizes AS (
        SELECT tenant, cluster_id, CAST(sum(n_represented) AS BIGINT) AS raw_queries, count(*) AS kept
        FROM cleaned_queries GROUP BY tenant, cluster_id ORDER BY raw_queries DESC, tenant, cluster_id LIMIT 8
    ), kept_queries AS (SELECT * FROM cleaned_queries SEMI JOIN sizes USING (tenant, cluster_id)),
    texts AS (
        SELECT tenant, cluster_id, 0 AS place, left(text, {MAX_TEXT_CHARACTERS}) AS text FROM kept_queries UNION ALL
        SELECT p.tenant, p.cluster_id, 1, left(r.payload, {MAX_TEXT_CHARACTERS}) FROM rejects r
        JOIN kept_queries p ON p.tenant = r.tenant AND p.query_id = r.represented_by
        WHERE r.stage LIKE 'clean.%' AND r.payload IS NOT NULL
    ), distinct_texts AS (
        SELECT tenant, cluster_id, place, text FROM texts
        QUALIFY row_number() OVER (
            PARTITION BY tenant, cluster_id, lower(regexp_replace(trim(text), '\\s+', ' ', 'g')) ORDER BY place, text
        ) = 1
    ), cluster_examples AS (
        SELECT tenant, cluster_id, list(text ORDER BY place, text)[1:6] AS examples FROM distinct_texts GROUP BY ALL
    )
    SELECT tenant, cluster_id, raw_queries, kept, examples FROM sizes JOIN cluster_examples USING (tenant, cluster_id)
    ORDER BY raw_queries DESC, tenant, cluster_id
"""


def _word_counts(source: ReportSource) -> pa.Table:
    """Number of raw, cleaned and kept queries by number of words."""
    tables = source.tables
    raw = _by_words(count_words(tables.read("raw_queries", ["text"])["text"]))
    sampled = _by_words(count_words(tables.sql(SAMPLED_OUT_QUERIES_SQL)["payload"]))
    retained_counts = _by_words(tables.read("cleaned_queries", ["n_words"])["n_words"])
    words = np.flatnonzero(raw + sampled + retained_counts)
    counts = {"raw": raw, "cleaned": sampled + retained_counts, "kept": retained_counts}
    return pa.table({"words": words} | {name: count[words] for name, count in counts.items()})


def _by_words(words: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.bincount(np.minimum(words.to_numpy(), MAX_WORDS + 1), minlength=MAX_WORDS + 2)


def _lengths(table: pa.Table, _source: ReportSource) -> list[Chart]:
    words = table["words"].to_pylist()
    bins, axis = integer_bins(words, MAX_WORDS, "words")
    series = []
    for name, tone in (("raw", "faint"), ("cleaned", "c"), ("kept", "a")):
        counts = table[name].to_pylist()
        value = f"{number(sum(counts))} · median {_median(words, counts)}"
        series.append(Histogram(name, tone, counts, "queries", value))
    return [histograms(bins, series, axis)]


def _median(values: list[int], counts: list[int]) -> str:
    """Lower median of values with counts."""
    remaining = (sum(counts) + 1) // 2
    for value, count in zip(values, counts, strict=True):
        remaining -= count
        if remaining <= 0:
            return str(value) if value <= MAX_WORDS else f"more than {MAX_WORDS}"
    return "–"


def _largest(table: pa.Table, _source: ReportSource) -> list[Quotes]:
    return [
        Quotes(
            [
                Quote(
                    row["examples"][0],
                    (row["tenant"], f"{number(row['raw_queries'])} raw queries", f"{number(row['kept'])} kept"),
                    [plain(text) for text in row["examples"][1:]],
                )
                for row in table.to_pylist()
            ]
        )
    ]


SECTION = FigureSection(
    "queries",
    "Queries",
    (
        Figure(
            "query-length",
            "Query length",
            "Queries by number of words: raw, after cleaning (noise, length percentiles, language, duplicates), and "
            "kept after cluster sampling. Each row has its own scale; the last bin contains all above 30.",
            _word_counts,
            _lengths,
            ("raw_queries", "cleaned_queries"),
            wide=True,
        ),
        Figure(
            "languages",
            "Languages",
            "Queries by detected language, kept or dropped. Detection is unreliable for short queries; they are "
            "dropped only if another language is likely.",
            sql_source(LANGUAGES_SQL),
            lambda table, _: [
                stacked_bars(
                    table, "language", {"kept": ("kept", "a"), "dropped": ("dropped", "faint")}, axis="queries"
                )
            ],
            ("cleaned_queries",),
            max_rows=20,
        ),
        Figure(
            "cluster-sizes",
            "Query cluster sizes",
            "Clusters of similar queries by the number of raw queries they represent.",
            sql_source(CLUSTER_SIZES_SQL),
            lambda table, _: [stacked_bars(table, "raw_queries", {"clusters": ("clusters", "a")}, axis="clusters")],
            ("cleaned_queries",),
        ),
        Figure(
            "largest-clusters",
            "Largest query clusters",
            "A kept query and other queries of its cluster.",
            sql_source(LARGEST_CLUSTERS_SQL),
            _largest,
            ("cleaned_queries",),
            wide=True,
        ),
    ),
)
