"""Cleaning the query log (DevRev-Search, 3.1): noise, language, length, exact duplicates, diversity, in this order.

Each filter says of every query why it goes, or that it stays. What goes is in `rejects`; what is dropped because
another query says the same names that query.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import EverythingDropped
from darklode.pipeline.base.personal_data import mask
from darklode.pipeline.base.segmentation import count_words
from darklode.pipeline.prepare.cluster_sampling import pick_representatives
from darklode.pipeline.prepare.filters import FilterResult, drop_duplicates, drop_extremes
from darklode.pipeline.prepare.language import LANGUAGE, drop_other_languages
from darklode.pipeline.prepare.noise import drop_noise
from darklode.schemas.settings import CleanSettings
from darklode.schemas.tables import CLEANED_QUERIES, RAW_QUERIES

CLEAN = Stage("clean", 4, ("raw_queries", "documents"), ("cleaned_queries",))

REMEDIES = {
    "clean.noise": "clean.noise (false keeps all)",
    "clean.length": "clean.min_percentile and clean.max_percentile",
    "clean.duplicates": "clean.deduplicate (false keeps all)",
    "clean.diversity": "clean.max_per_cluster (0 keeps all)",
}
"""The setting that loosens each step; that of the language depends on the queries."""

Filter = Callable[[pa.Table], FilterResult]


def clean(tables: Tables, output: Output, settings: CleanSettings, *, seed: int) -> None:
    """Clean a query log.

    Args:
        tables: holds `raw_queries`, and `documents`, whose words tell a query's language.
        output: takes `cleaned_queries` and `rejects`.
        settings: which filters, how strict; `keep_all` lets every query through and only describes it.
        seed: of the clustering.

    Raises:
        EverythingDropped: no query passed.
    """
    queries = _working_table(tables.read("raw_queries"), settings)
    dropped: list[tuple[str, pa.Table]] = []
    for number, (name, sieve) in enumerate(_filters(tables, settings, seed)):
        output.progress(number, 5)
        queries, gone = _apply(f"clean.{name}", sieve(queries), output, settings.keep_all)
        dropped.append((f"clean.{name}", gone))
    for step, gone in name_survivors(dropped):
        output.reject(step, RAW_QUERIES.name, {name: gone[name] for name in gone.column_names})
    columns = {name: queries[name] for name in CLEANED_QUERIES.schema.names}
    in_order = CLEANED_QUERIES.rows(columns).sort_by([("tenant", "ascending"), ("query_id", "ascending")])
    output.write("cleaned_queries", in_order)
    if not queries.num_rows:
        raise EverythingDropped(explain_drops(dropped, settings))


def explain_drops(dropped: Sequence[tuple[str, pa.Table]], settings: CleanSettings) -> str:
    """Which rules dropped all queries, the one that dropped most first, and the setting that loosens that one."""
    steps = {step: Counter(rejects["reason"].to_pylist()) for step, rejects in dropped}
    totals = Counter({step: reasons.total() for step, reasons in steps.items() if reasons})
    rules = [f"{step} {n:,} ({_most_common(steps[step])})" for step, n in totals.most_common()]
    return (
        f"cleaning dropped every query: {'; '.join(rules) or 'there was none'}. "
        f"{_remedy(next(iter(totals.most_common()), ('', 0))[0], steps, settings)}pass --keep-all-queries to clean "
        'nothing. `darklode query RUN "FROM rejects"` lists each query with its reason'
    )


def _most_common(reasons: Counter[str]) -> str:
    return ", ".join(
        f"{reason} {n:,}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:3]
    )


def _remedy(step: str, steps: Mapping[str, Counter[str]], settings: CleanSettings) -> str:
    if step == "clean.language":
        language = steps[step].most_common(1)[0][0].removeprefix(f"{LANGUAGE} ")
        language_list = ", ".join(settings.languages)
        return (
            f"clean.language keeps {language_list}: set clean.language={language}, or null to keep every language; or "
        )
    return f"Loosen {REMEDIES[step]}; or " if step in REMEDIES else ""


def _filters(tables: Tables, settings: CleanSettings, seed: int) -> list[tuple[str, Filter]]:
    return [
        ("noise", lambda queries: drop_noise(queries, settings)),
        ("language", lambda queries: drop_other_languages(queries, settings, tables)),
        ("length", lambda queries: drop_extremes(queries, settings)),
        ("duplicates", lambda queries: drop_duplicates(queries, settings)),
        ("diversity", lambda queries: pick_representatives(queries, settings, seed, tables)),
    ]


def _working_table(raw: pa.Table, settings: CleanSettings) -> pa.Table:
    text = pc.utf8_trim_whitespace(raw["text"])
    if settings.mask_personal_data:
        text = mask(text)
    queries = raw.select(["tenant", "query_id"]).append_column("text", text)
    return queries.append_column("n_represented", raw["count"]).append_column("n_words", count_words(text))


def _apply(step: str, result: FilterResult, output: Output, keep_all: bool) -> tuple[pa.Table, pa.Table]:
    """The queries that stay, and those that go as columns of `rejects`."""
    if keep_all:
        result = FilterResult.all_kept(result.queries)
    output.facts |= result.facts
    remaining, gone = credit_survivors(result), result.rejects()
    counts = {item["values"]: item["counts"] for item in pc.value_counts(gone["reason"]).to_pylist()}
    before = result.queries.num_rows
    output.count(FunnelStep(step, "queries", before, "queries", remaining.num_rows, dict(sorted(counts.items()))))
    return remaining, gone


def credit_survivors(result: FilterResult) -> pa.Table:
    """The kept queries, each credited with the raw queries of those it stands for."""
    survivors = result.queries.filter(pc.invert(result.is_dropped))
    lent = result.queries.filter(pc.is_valid(result.represented_by))
    if not lent.num_rows:
        return survivors
    by = result.represented_by.filter(pc.is_valid(result.represented_by))
    loans = pa.table({"tenant": lent["tenant"], "query_id": by, "lent": lent["n_represented"]})
    sums = loans.group_by(["tenant", "query_id"]).aggregate([("lent", "sum")])
    rows = survivors.select(["tenant", "query_id"]).append_column("row", pa.array(np.arange(survivors.num_rows)))
    joined = rows.join(sums, ["tenant", "query_id"]).sort_by("row")
    total = pc.add(survivors["n_represented"], pc.fill_null(joined["lent_sum"], 0))
    return survivors.set_column(survivors.schema.get_field_index("n_represented"), "n_represented", total)


def name_survivors(dropped: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """Rejects by step, each naming a query that was kept: one that went later passes its own representative on."""
    names = ["tenant", "id", "by"]
    later = pa.table({name: pa.array([], pa.string()) for name in names} | {"went": pa.array([], pa.bool_())})
    for step, gone in reversed(list(dropped)):
        rows = gone.append_column("row", pa.array(np.arange(gone.num_rows)))
        heirs = rows.join(later, ["tenant", "represented_by"], ["tenant", "id"]).sort_by("row")
        final = pc.if_else(pc.is_valid(heirs["went"]), heirs["by"], heirs["represented_by"])
        with_survivor = gone.set_column(gone.schema.get_field_index("represented_by"), "represented_by", final)
        survivor_ids = with_survivor.select(["tenant", "id", "represented_by"]).rename_columns(names)
        later = pa.concat_tables([later, survivor_ids.append_column("went", pa.repeat(True, survivor_ids.num_rows))])
        yield step, with_survivor
