"""Online measures of a log: clicks, abandoned searches and short result lists, by variant of an experiment.

The log names the variant of the ranking. A search whose results are all of one variant is one side of an A/B test. A
search with several variants is a team-draft interleaved list: each click is credited to the variant that contributed
the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.bootstrap import INTERVAL_PERCENTILES, resample
from darklode.pipeline.base.relations import view
from darklode.pipeline.base.types import Doubles as Floats
from darklode.pipeline.base.types import Rows
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, ResamplingSettings, holm, linearized_interval
from darklode.pipeline.mine.evidence import Exposures
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.mining import LogSettings
from darklode.schemas.tables import TABLES

ONLINE_STAGE = Stage("online", 4, ("impressions",), ("online", "online_pairs"))

DEPTHS = (4, 20)
"""Depths of the judged measures: share of irrelevant results among the first 4 and 20 (ScalingNote, 4.6)."""

MEASURES = {
    "click-through": ("clicks", "shown"),
    "searches with a click at 1": ("first", "searches"),
    "searches with a click in the first 3": ("early", "searches"),
    "abandoned searches": ("abandoned", "searches"),
    "searches with fewer than 5 results": ("few", "searches"),
    "sessions with a click": ("clicking", "sessions"),
    "interleaved lists won": ("won", "contests"),
} | {f"irrelevant among the first {depth}": (f"irrelevant_{depth}", f"judged_{depth}") for depth in DEPTHS}
"""Name of each measure, with the counts (of `COUNTS`) that are its numerator and denominator."""

SAMPLE_SIZE_COUNTS = {f"judged_{depth}": f"looked_{depth}" for depth in DEPTHS}
"""For denominators that are sums of weights: the count that says how many results were judged."""

COUNTS = "shown clicks searches first early abandoned few clicking sessions won contests".split()
COUNTS += [f"{name}_{depth}" for depth in DEPTHS for name in ("looked", "judged", "irrelevant")]
"""Counts per session and variant, in the order of the last axis of `SessionCounts.counts`."""

MIN_RESULTS = 5
"""A search with fewer results is short; the measure's name in `MEASURES` states the number too."""

_MAX_UNITS = 10_000  # a test merges more sessions into this many units, which are exchangeable as well
_DRAWS_AT_ONCE = 200  # permutations per batch; memory grows with batch × sessions

# Impressions of people (without bots), with the variant that contributed each document; the columns of `shown`. Queries
# that begin with it fill in {impressions} and {people}. A search without a session_id is its own session.
SHOWN_DOCUMENTS_SQL = """
    WITH document_variants AS (
        SELECT tenant, search_id, doc_id, min(variant) AS variant FROM {impressions} WHERE variant IS NOT NULL
        GROUP BY tenant, search_id, doc_id
    ), shown AS (
        SELECT p.tenant, p.search_id, p.query_id, p.doc_id, p.position, p.clicked, t.variant,
               coalesce(min(p.session_id) OVER (PARTITION BY p.tenant, p.search_id), p.search_id) AS session
        FROM {people} p LEFT JOIN document_variants t USING (tenant, search_id, doc_id)
    )
"""

# Result lists with one variant belong to that variant. A list with several variants is interleaved: the variant with
# most clicks wins it, and ties share the win.
SESSION_COUNTS_SQL = f"""{SHOWN_DOCUMENTS_SQL}
    , searches AS (
        SELECT tenant, search_id, session, count(DISTINCT variant) AS variants, min(variant) AS variant,
               count(*) AS shown, count(*) FILTER (clicked) AS clicks, min(position) FILTER (clicked) AS first_click
        FROM shown GROUP BY ALL
    ), searches_by_variant AS (
        SELECT * FROM searches WHERE variants = 1
        UNION ALL SELECT * REPLACE (NULL AS variant) FROM searches
    ), team_clicks AS (
        SELECT s.tenant, s.search_id, s.session, t.variant, count(*) FILTER (t.clicked) AS clicks
        FROM searches s JOIN shown t USING (tenant, search_id)
        WHERE s.variants > 1 AND s.clicks > 0 AND t.variant IS NOT NULL
        GROUP BY ALL
    ), ranked_teams AS (
        SELECT *, max(clicks) OVER search_window AS max_clicks, count(*) OVER tie_window AS n_tied FROM team_clicks
        WINDOW search_window AS (PARTITION BY tenant, search_id), tie_window AS (PARTITION BY tenant, search_id, clicks)
    ), search_counts AS (
        SELECT tenant, session, variant, shown, clicks, 1 AS searches,
               CAST(coalesce(first_click = 1, false) AS INTEGER) AS first,
               CAST(coalesce(first_click <= 3, false) AS INTEGER) AS early,
               CAST(clicks = 0 AS INTEGER) AS abandoned, CAST(shown < $few AS INTEGER) AS few,
               0.0 AS won, 0 AS contests
        FROM searches_by_variant
        UNION ALL
        SELECT tenant, session, variant, 0, 0, 0, 0, 0, 0, 0,
               CASE WHEN clicks = max_clicks THEN 1 / n_tied ELSE 0 END, 1
        FROM ranked_teams
    )
    SELECT tenant, session, variant, CAST(sum(shown) AS BIGINT) AS shown, CAST(sum(clicks) AS BIGINT) AS clicks,
           CAST(sum(searches) AS BIGINT) AS searches, CAST(sum(first) AS BIGINT) AS first,
           CAST(sum(early) AS BIGINT) AS early, CAST(sum(abandoned) AS BIGINT) AS abandoned,
           CAST(sum(few) AS BIGINT) AS few, CAST(sum(CAST(won AS DECIMAL(18, 9))) AS DOUBLE) AS won,
           CAST(sum(contests) AS BIGINT) AS contests
    FROM search_counts GROUP BY tenant, session, variant ORDER BY tenant, session, variant NULLS FIRST
"""

# Reads `session_counts`, the rows of `SESSION_COUNTS_SQL` of all days, which `_judged_rows` registers.
# A sampled search represents all searches of its tenant and variant (no or several variants count as null).
JUDGED_COUNTS_SQL = """
    WITH sizes AS (
        SELECT tenant, variant, sum(searches) AS searches FROM session_counts WHERE variant IS NOT NULL
        GROUP BY tenant, variant
        UNION ALL
        SELECT tenant, NULL, sum(CASE WHEN variant IS NULL THEN searches ELSE -searches END) FROM session_counts
        GROUP BY tenant
    ), judged_results AS (
        SELECT v.tenant, session, v.variant, position, relevant,
               CAST(greatest(1, searches / $n_searches) AS DECIMAL(18, 6)) AS weight
        FROM online_verdicts v JOIN sizes s ON v.tenant = s.tenant AND v.variant IS NOT DISTINCT FROM s.variant
        WHERE relevant IS NOT NULL
    ), searches_by_variant AS (
        SELECT * FROM judged_results WHERE variant IS NOT NULL
        UNION ALL SELECT * REPLACE (NULL AS variant) FROM judged_results
    )
    SELECT tenant, session, variant, {counts} FROM searches_by_variant
    GROUP BY tenant, session, variant ORDER BY tenant, session, variant NULLS FIRST
"""
_JUDGED_COUNTS_AT_DEPTH_SQL = """
    count(*) FILTER (position <= {depth}) AS looked_{depth},
    CAST(coalesce(sum(weight) FILTER (position <= {depth}), 0) AS DOUBLE) AS judged_{depth},
    CAST(coalesce(sum(weight) FILTER (position <= {depth} AND NOT relevant), 0) AS DOUBLE) AS irrelevant_{depth}
"""


def online(
    tables: Tables, output: Output, settings: LogSettings, measuring: EvaluateSettings, *, searches: int, seed: int
) -> None:
    """Write each measure for the whole log and each variant, and for every two variants.

    Sessions are resampled, not impressions, because clicks of a user are dependent. Bots are removed day by day, as for
    evidence. Memory grows with sessions × variants.

    Args:
        tables: must contain `impressions`, and `online_verdicts` if there is a judge.
        output: receives `online` and `online_pairs`.
        settings: which users' searches count (bots are left out).
        measuring: numbers of resamples and permutations.
        searches: maximum number of searches of each tenant and variant that were drawn for the judge; a wrong number
            gives wrong weights.
        seed: random seed of resamples and permutations.

    Source: ScalingNote, 4.6; Radlinski, Kurup and Joachims 2008 (team-draft interleaving).
    """
    daily_counts = [pa.table({name: pa.array([], pa.string()) for name in ("tenant", "session", "variant")})]
    days = tables.by_day("impressions", "timestamp")
    for number, (day, parts) in enumerate(days.items()):
        with tables.with_parts("impressions", parts).connect() as connection:
            impressions = view(connection, tables.with_parts("impressions", parts), "impressions")
            people = Exposures.from_impressions(connection, impressions, settings).people
            sessions_sql = SESSION_COUNTS_SQL.format(impressions=impressions, people=people)
            daily_counts.append(connection.sql(sessions_sql, params={"few": MIN_RESULTS}).to_arrow_table())
        output.progress(number + 1, len(days), day)
    rows = pa.concat_tables(daily_counts, promote_options="default")
    if "online_verdicts" in tables:
        rows = pa.concat_tables([rows, _judged_rows(tables, rows, searches)], promote_options="default")
    tenants = pc.unique(rows["tenant"]).sort().to_pylist()
    resampling = ResamplingSettings(measuring.n_resamples, measuring.permutations, seed)
    share_rows: Rows = []
    pair_rows: Rows = []
    for tenant in [None, *(tenants if len(tenants) > 1 else [])]:
        tenant_rows = rows if tenant is None else rows.filter(pc.equal(rows["tenant"], tenant))
        if tenant_rows.num_rows:
            session_counts = SessionCounts.from_rows(tenant_rows)
            share_rows += [{"tenant": tenant} | row for row in session_counts.shares(resampling)]
            pair_rows += [{"tenant": tenant} | row for row in session_counts.pairs(resampling)]
    output.write("online", pa.Table.from_pylist(share_rows, schema=TABLES["online"].schema))
    output.write("online_pairs", pa.Table.from_pylist(pair_rows, schema=TABLES["online_pairs"].schema))


def _judged_rows(tables: Tables, session_counts: pa.Table, searches: int) -> pa.Table:
    """Count the judge's verdicts by tenant, session and variant, to be appended to rows of `SESSION_COUNTS_SQL`.

    Args:
        tables: must contain `online_verdicts`.
        session_counts: rows of `SESSION_COUNTS_SQL`, for the number of searches that a sampled search represents.
        searches: maximum number of sampled searches of each tenant and variant.
    """
    count_columns = ",".join(_JUDGED_COUNTS_AT_DEPTH_SQL.format(depth=depth) for depth in DEPTHS)
    with tables.connect() as connection:
        connection.register("session_counts", session_counts)
        judged_sql = JUDGED_COUNTS_SQL.format(counts=count_columns)
        rows: pa.Table = connection.sql(judged_sql, params={"n_searches": searches}).to_arrow_table()
        return rows


@dataclass(frozen=True)
class SessionCounts:
    """Counts of one tenant, or of the whole log, by session and variant.

    Attributes:
        variants: names of the variants; the first is None and stands for all variants together.
        counts: counts by session, variant and `COUNTS`, shape (n_sessions, n_variants, n_counts).
    """

    variants: list[str | None]
    counts: Floats

    @classmethod
    def from_rows(cls, rows: pa.Table) -> SessionCounts:
        """Sum rows of `SESSION_COUNTS_SQL`, and of `JUDGED_COUNTS_SQL`, of one or several days."""
        variants = [None, *pc.unique(rows["variant"]).drop_null().sort().to_pylist()]
        session_keys = pc.binary_join_element_wise(rows["tenant"], rows["session"], "\x00").combine_chunks()
        session = session_keys.dictionary_encode().indices.to_numpy()
        variant = pc.fill_null(pc.index_in(rows["variant"], pa.array(variants[1:], pa.string())), -1).to_numpy() + 1
        counts = np.zeros((int(session.max()) + 1, len(variants), len(COUNTS)))
        for column, count in enumerate(COUNTS):
            if count in rows.column_names:
                np.add.at(counts[:, :, column], (session, variant), pc.fill_null(rows[count], 0).to_numpy())
        searched = counts[:, :, COUNTS.index("searches")] > 0
        counts[:, :, COUNTS.index("sessions")] = searched
        counts[:, :, COUNTS.index("clicking")] = searched & (counts[:, :, COUNTS.index("clicks")] > 0)
        return cls(variants, counts)

    def shares(self, chance: ResamplingSettings) -> Iterator[dict[str, Any]]:
        """Yield rows of `online` without the tenant: each measure of each variant, with its bootstrap interval."""
        flat = self.counts.reshape(len(self.counts), -1)
        values = self._values(flat.sum(axis=0))
        resampled = resample(flat, self._values, chance.resamples, chance.seed)
        low, high = np.nanpercentile(np.where(np.isnan(values), 0, resampled), INTERVAL_PERCENTILES, axis=0)
        for variant_index, variant in enumerate(self.variants):
            for measure_index, (measure, (_, denominator)) in enumerate(MEASURES.items()):
                measure_sizes = self.counts[
                    :, variant_index, COUNTS.index(SAMPLE_SIZE_COUNTS.get(denominator, denominator))
                ]
                if not np.isnan(values[variant_index, measure_index]):
                    interval = {"low": low[variant_index, measure_index], "high": high[variant_index, measure_index]}
                    sizes = {"counted": int(measure_sizes.sum()), "sessions": int((measure_sizes > 0).sum())}
                    yield (
                        {"variant": variant, "measure": measure, "value": values[variant_index, measure_index]}
                        | interval
                        | sizes
                    )

    def pairs(self, chance: ResamplingSettings) -> Rows:
        """Compute rows of `online_pairs` without the tenant: each later variant against each earlier one."""
        values = self._values(self.counts.reshape(len(self.counts), -1).sum(axis=0))
        comparisons = [
            (other, variant, measure_index)
            for other, variant in combinations(range(1, len(self.variants)), 2)
            for measure_index in range(len(MEASURES))
            if not np.isnan(values[variant, measure_index] - values[other, measure_index])
        ]
        chance = replace(chance, tests=len(comparisons))
        rows = list[dict[str, Any]]()
        variant_pairs = dict.fromkeys((other, variant) for other, variant, _ in comparisons)
        p_values = {variant_pair: self._p_values(*variant_pair, chance) for variant_pair in variant_pairs}
        for other, variant, measure_index in comparisons:
            row: dict[str, Any] = {
                "variant": self.variants[variant],
                "other": self.variants[other],
                "measure": list(MEASURES)[measure_index],
            }
            row["difference"] = values[variant, measure_index] - values[other, measure_index]
            row["low"], row["high"] = self._interval(other, variant, measure_index, row["difference"], chance)
            rows.append(row | {"p": p_values[other, variant][measure_index]})
        for row, p_holm in zip(rows, holm([row["p"] for row in rows]), strict=True):
            row["p_holm"] = p_holm
        return rows

    def _interval(
        self, other: int, variant: int, number: int, difference: float, chance: ResamplingSettings
    ) -> tuple[float | None, float | None]:
        """Compute the interval of the observed difference of two variants in a measure.

        Returns (None, None) if few or identical sessions would make a variant look certain.
        """
        influences = np.stack([self._influence(variant_number, number) for variant_number in (variant, other)])
        has_data = ~np.isnan(influences)
        influences = np.nan_to_num(influences)
        if has_data.sum(axis=1).min() < MIN_CLUSTERS or np.abs(influences).max(axis=1).min() <= 1e-12:
            return None, None
        return linearized_interval(difference, (influences[0] - influences[1])[has_data.any(axis=0)], chance)

    def _influence(self, variant: int, number: int) -> Floats:
        """Compute the influence of each session on a variant's share, shape (n_sessions,); NaN if the session has no
        data.
        """
        numerator, denominator = (
            self.counts[:, variant, COUNTS.index(name)] for name in list(MEASURES.values())[number]
        )
        total = denominator.sum()
        return np.where(denominator > 0, (numerator - numerator.sum() / total * denominator) / total, np.nan)

    def _p_values(self, other: int, variant: int, chance: ResamplingSettings) -> Floats:
        """Compute the two-sided p-value of each measure's difference, shape (n_measures,).

        Permutation test: variants of single-variant sessions are shuffled, and counts of sessions with both
        are swapped between them. A permutation that leaves a variant without data counts as reaching the difference
        (conservative).
        """
        sides = self.counts[:, [other, variant]]
        present: NDArray[np.bool_] = (sides != 0).any(axis=-1)
        both_counts = _merge_counts(sides[present.all(axis=1)], len(sides))
        single = [
            _merge_counts(sides[present[:, side] & ~present[:, 1 - side]][:, side], len(sides)) for side in (0, 1)
        ]
        single_counts = np.concatenate(single)
        is_of_arm = np.repeat([False, True], [len(sessions) for sessions in single])
        total = single_counts.sum(axis=0) + both_counts.sum(axis=(0, 1))
        random = np.random.default_rng(chance.seed)

        def distance(sums: Floats) -> Floats:
            """Absolute difference of each measure, if one variant has these sums and the other has the rest."""
            values = [self._shares(arm_sums) for arm_sums in (sums, total - sums)]
            return np.abs(values[0] - values[1])

        # A permutation with the same difference counts, in spite of rounding.
        threshold = distance(sides[:, 1].sum(axis=0)) * (1 - 1e-12) - 1e-12
        n_reached = np.zeros(len(threshold), np.int64)
        for start in range(0, chance.signs, _DRAWS_AT_ONCE):
            count = min(_DRAWS_AT_ONCE, chance.signs - start)
            shuffled = random.permuted(np.tile(is_of_arm, (count, 1)), axis=1)
            keeps_arm = random.random((count, len(both_counts))) < 0.5
            sums = (
                shuffled @ single_counts
                + keeps_arm @ (both_counts[:, 1] - both_counts[:, 0])
                + both_counts[:, 0].sum(axis=0)
            )
            n_reached += (~(distance(sums) < threshold)).sum(axis=0)
        return np.asarray((n_reached + 1) / (chance.signs + 1))

    def _values(self, sums: Floats) -> Floats:
        """Compute all measures from flattened sums, shape (..., n_variants, n_measures); NaN without data."""
        return self._shares(sums.reshape(*sums.shape[:-1], *self.counts.shape[1:]))

    @staticmethod
    def _shares(sums: Floats) -> Floats:
        """Compute measures, shape (..., n_measures), from sums of counts, shape (..., n_counts)."""
        numerator, denominator = (
            np.array([COUNTS.index(count_names[side]) for count_names in MEASURES.values()]) for side in (0, 1)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(sums[..., numerator] / sums[..., denominator])


def _merge_counts(counts: Floats, sessions: int) -> Floats:
    """Merge sessions into units, so that at most about `_MAX_UNITS` units remain over all kinds of sessions.

    Args:
        counts: counts of one kind of sessions, by session, shape (n_sessions, ...).
        sessions: number of sessions of all kinds.
    """
    units = -(-len(counts) * _MAX_UNITS // max(sessions, _MAX_UNITS))
    merged = np.zeros((units, *counts.shape[1:]))
    if units:
        np.add.at(merged, np.arange(len(counts)) % units, counts)
    return merged
