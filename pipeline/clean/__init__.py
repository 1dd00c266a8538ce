"""Cleaning the query log (DevRev-Search, 3.1): noise, length, language, exact duplicates, diversity, in this order.

Each filter says of every query why it goes, or that it stays. What goes is in `rejects`; what is dropped because
another query says the same names that query.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.clean.diversity import pick_representatives
from pipeline.clean.duplicates import drop_duplicates
from pipeline.clean.language import drop_other_languages
from pipeline.clean.length import count_words, drop_extremes
from pipeline.clean.noise import drop_noise
from pipeline.clean.sifted import Sifted, credit, name_survivors
from pipeline.errors import InputError
from pipeline.personal_data import mask
from schemas.settings import CleanSettings
from schemas.tables import CLEANED_QUERIES, RAW_QUERIES

CLEAN = Stage("clean", 1, ("raw_queries",), ("cleaned_queries",))

Filter = Callable[[pa.Table], Sifted]


def clean(tables: Tables, output: Output, settings: CleanSettings, *, seed: int) -> None:
    """Clean a query log.

    Args:
        tables: holds `raw_queries`.
        output: takes `cleaned_queries` and `rejects`.
        settings: which filters, how strict; `keep_all` lets every query through and only describes it.
        seed: of the clustering.

    Raises:
        InputError: no query passed.
    """
    queries = _working_table(tables.read("raw_queries"), settings)
    dropped: list[tuple[str, pa.Table]] = []
    for number, (name, sieve) in enumerate(_filters(settings, seed)):
        output.progress(number, 5)
        queries, gone = _apply(f"clean.{name}", sieve(queries), output, settings.keep_all)
        dropped.append((f"clean.{name}", gone))
    if not queries.num_rows:
        raise InputError("cleaning dropped every query; loosen the settings under clean, or pass --keep-all-queries")
    for step, gone in name_survivors(dropped):
        output.reject(step, RAW_QUERIES.name, {name: gone[name] for name in gone.column_names})
    columns = {name: queries[name] for name in CLEANED_QUERIES.schema.names}
    in_order = CLEANED_QUERIES.rows(columns).sort_by([("tenant", "ascending"), ("query_id", "ascending")])
    output.write("cleaned_queries", in_order)


def _filters(settings: CleanSettings, seed: int) -> list[tuple[str, Filter]]:
    return [
        ("noise", lambda queries: drop_noise(queries, settings)),
        ("length", lambda queries: drop_extremes(queries, settings)),
        ("language", lambda queries: drop_other_languages(queries, settings)),
        ("duplicates", lambda queries: drop_duplicates(queries, settings)),
        ("diversity", lambda queries: pick_representatives(queries, settings, seed)),
    ]


def _working_table(raw: pa.Table, settings: CleanSettings) -> pa.Table:
    text = pc.utf8_trim_whitespace(raw["text"])
    if settings.mask_personal_data:
        text = mask(text)
    queries = raw.select(["tenant", "query_id"]).append_column("text", text)
    return queries.append_column("n_represented", raw["count"]).append_column("n_words", count_words(text))


def _apply(step: str, sifted: Sifted, output: Output, keep_all: bool) -> tuple[pa.Table, pa.Table]:
    """The queries that stay, and those that go as columns of `rejects`."""
    if keep_all:
        sifted = Sifted.all_kept(sifted.queries)
    kept, gone = credit(sifted), sifted.rejects()
    counts = {item["values"]: item["counts"] for item in pc.value_counts(gone["reason"]).to_pylist()}
    before = sifted.queries.num_rows
    output.count(FunnelStep(step, "queries", before, "queries", kept.num_rows, dict(sorted(counts.items()))))
    return kept, gone
