"""The stage `clean`: filter the query log by noise, language, length, exact duplicates and diversity, in this order.

Each filter gives a reason for every query that it drops. Dropped queries are in `rejects`, with the reason and, for
duplicates, the id of the kept query that represents them. Source: DevRev-Search, 3.1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import EverythingDropped
from darklode.pipeline.base.personal_data import mask
from darklode.pipeline.base.segmentation import count_words
from darklode.pipeline.prepare.cluster_sampling import pick_representatives
from darklode.pipeline.prepare.filters import FilterResult, drop_duplicates, drop_extremes, flat
from darklode.pipeline.prepare.language import LANGUAGE_REASON, drop_other_languages
from darklode.pipeline.prepare.noise import drop_noise
from darklode.schemas.settings import CleanSettings
from darklode.schemas.tables import CLEANED_QUERIES, RAW_QUERIES

CLEAN = Stage("clean", 4, ("raw_queries", "documents"), ("cleaned_queries",))

SETTING_OF_STEP = {
    "clean.noise": "clean.noise (false keeps all)",
    "clean.length": "clean.min_percentile and clean.max_percentile",
    "clean.duplicates": "clean.deduplicate (false keeps all)",
    "clean.diversity": "clean.max_per_cluster (0 keeps all)",
}
"""Setting that loosens each step, for error messages; for the language step, see `_remedy`."""

Filter = Callable[[pa.Table], FilterResult]


def clean(tables: Tables, output: Output, settings: CleanSettings, *, seed: int) -> None:
    """Clean a query log.

    Args:
        tables: holds `raw_queries`, and `documents`, whose words help to identify a query's language; with
            `judgments`, their queries are always kept.
        output: receives `cleaned_queries` and `rejects`.
        settings: filters and their thresholds; with `keep_all` no query is dropped, but all columns are computed.
        seed: random seed of the clustering.

    Raises:
        EverythingDropped: no query passed.
    """
    queries = _working_table(_judged_first(tables), settings)
    dropped: list[tuple[str, pa.Table]] = []
    for number, (name, apply_filter) in enumerate(_filters(tables, settings, seed)):
        output.progress(number, 5)
        result = _keep_judged(apply_filter(queries))
        queries, rejects = _split_result(f"clean.{name}", result, output, settings.keep_all)
        dropped.append((f"clean.{name}", rejects))
    for step, rejects in name_survivors(dropped):
        output.reject(step, RAW_QUERIES.name, {name: rejects[name] for name in rejects.column_names})
    columns = {name: queries[name] for name in CLEANED_QUERIES.schema.names}
    cleaned = CLEANED_QUERIES.rows(columns).sort_by([("tenant", "ascending"), ("query_id", "ascending")])
    output.write("cleaned_queries", cleaned)
    if not queries.num_rows:
        raise EverythingDropped(explain_drops(dropped, settings))


def explain_drops(dropped: Sequence[tuple[str, pa.Table]], settings: CleanSettings) -> str:
    """Error message: the steps that dropped all queries, largest first, and the setting that loosens the first."""
    steps = {step: Counter(rejects["reason"].to_pylist()) for step, rejects in dropped}
    totals = Counter({step: reasons.total() for step, reasons in steps.items() if reasons})
    rules = [f"{step} {n:,} ({_most_common(steps[step])})" for step, n in totals.most_common()]
    return (
        f"cleaning dropped every query: {'; '.join(rules) or 'there was none'}. "
        f"{_remedy(next(iter(totals.most_common()), ('', 0))[0], steps, settings)}pass --keep-all-queries to clean "
        'nothing. `darklode query RUN "FROM rejects"` lists each query with its reason'
    )


def _most_common(reasons: Counter[str]) -> str:
    """The three most frequent reasons with their numbers; equal numbers in alphabetical order."""
    return ", ".join(
        f"{reason} {n:,}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:3]
    )


def _remedy(step: str, steps: Mapping[str, Counter[str]], settings: CleanSettings) -> str:
    """Sentence on the setting that loosens a step; empty for an unknown step."""
    if step == "clean.language":
        language = steps[step].most_common(1)[0][0].removeprefix(f"{LANGUAGE_REASON} ")
        language_list = ", ".join(settings.languages) or "the languages of the documents"
        return (
            f"clean.language keeps {language_list}: set clean.language={language}, or null to keep every language; or "
        )
    return f"Loosen {SETTING_OF_STEP[step]}; or " if step in SETTING_OF_STEP else ""


def _filters(tables: Tables, settings: CleanSettings, seed: int) -> list[tuple[str, Filter]]:
    """Names and functions of the filters, in order; later filters use columns that earlier ones add."""
    return [
        ("noise", lambda queries: drop_noise(queries, settings)),
        ("language", lambda queries: drop_other_languages(queries, settings, tables)),
        ("length", lambda queries: drop_extremes(queries, settings)),
        ("duplicates", lambda queries: drop_duplicates(queries, settings)),
        ("diversity", lambda queries: pick_representatives(queries, settings, seed, tables)),
    ]


JUDGED_FIRST_SQL = """
    SELECT r.*, j.query_id IS NOT NULL AS is_judged
    FROM (SELECT *, row_number() OVER () AS n FROM raw_queries) r
    LEFT JOIN (SELECT DISTINCT tenant, query_id FROM judgments) j USING (tenant, query_id)
    ORDER BY is_judged DESC, n
"""


def _judged_first(tables: Tables) -> pa.Table:
    """Raw queries with a column `is_judged`; judged ones come first, since of equal queries the first is kept."""
    if "judgments" in tables:
        return tables.sql(JUDGED_FIRST_SQL)
    raw = tables.read("raw_queries")
    return raw.append_column("is_judged", pa.repeat(False, raw.num_rows))


def _keep_judged(result: FilterResult) -> FilterResult:
    """The result without the drops of judged queries."""
    is_judged, null = flat(result.queries["is_judged"]), pa.scalar(None, pa.string())
    reasons = pc.if_else(is_judged, null, result.reasons)
    return replace(result, reasons=reasons, represented_by=pc.if_else(is_judged, null, result.represented_by))


def _working_table(raw: pa.Table, settings: CleanSettings) -> pa.Table:
    """Raw queries with trimmed (and, if set, masked) texts, and the columns n_represented and n_words."""
    text = pc.utf8_trim_whitespace(raw["text"])
    if settings.mask_personal_data:
        text = mask(text)
    queries = raw.select(["tenant", "query_id", "is_judged"]).append_column("text", text)
    return queries.append_column("n_represented", raw["count"]).append_column("n_words", count_words(text))


def _split_result(step: str, result: FilterResult, output: Output, keep_all: bool) -> tuple[pa.Table, pa.Table]:
    """Record a filter's result in the funnel; returns the kept queries, and the dropped ones as rows of `rejects`."""
    if keep_all:
        result = FilterResult.all_kept(result.queries)
    output.facts |= result.facts
    kept_queries = credit_survivors(result)
    rejects = result.rejects()
    counts = {item["values"]: item["counts"] for item in pc.value_counts(rejects["reason"]).to_pylist()}
    n_in = result.queries.num_rows
    output.count(FunnelStep(step, "queries", n_in, "queries", kept_queries.num_rows, dict(sorted(counts.items()))))
    return kept_queries, rejects


def credit_survivors(result: FilterResult) -> pa.Table:
    """The kept queries; `n_represented` of each is increased by that of the dropped queries that it represents."""
    survivors = result.queries.filter(pc.invert(result.is_dropped))
    represented = result.queries.filter(pc.is_valid(result.represented_by))
    if not represented.num_rows:
        return survivors
    survivor_ids = result.represented_by.filter(pc.is_valid(result.represented_by))
    credit_rows = pa.table(
        {"tenant": represented["tenant"], "query_id": survivor_ids, "credit": represented["n_represented"]}
    )
    sums = credit_rows.group_by(["tenant", "query_id"]).aggregate([("credit", "sum")])
    rows = survivors.select(["tenant", "query_id"]).append_column("row", pa.array(np.arange(survivors.num_rows)))
    joined = rows.join(sums, ["tenant", "query_id"]).sort_by("row")  # a join does not keep the order
    total = pc.add(survivors["n_represented"], pc.fill_null(joined["credit_sum"], 0))
    return survivors.set_column(survivors.schema.get_field_index("n_represented"), "n_represented", total)


def name_survivors(dropped: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rejects of each step, last step first, such that `represented_by` is a query that all steps kept.

    A representative that a later step dropped is replaced by its own representative, or by null if it has none.
    """
    names = ["tenant", "id", "survivor"]
    dropped_later = pa.table(
        {name: pa.array([], pa.string()) for name in names} | {"was_dropped": pa.array([], pa.bool_())}
    )
    for step, rejects in reversed(list(dropped)):
        rows = rejects.append_column("row", pa.array(np.arange(rejects.num_rows)))
        joined = rows.join(dropped_later, ["tenant", "represented_by"], ["tenant", "id"]).sort_by("row")
        survivors = pc.if_else(pc.is_valid(joined["was_dropped"]), joined["survivor"], joined["represented_by"])
        column_index = rejects.schema.get_field_index("represented_by")
        with_survivor = rejects.set_column(column_index, "represented_by", survivors)
        survivor_ids = with_survivor.select(["tenant", "id", "represented_by"]).rename_columns(names)
        survivor_ids = survivor_ids.append_column("was_dropped", pa.repeat(True, survivor_ids.num_rows))
        dropped_later = pa.concat_tables([dropped_later, survivor_ids])
        yield step, with_survivor
