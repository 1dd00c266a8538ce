"""The dataset card of a mined run: what came of the log, by whose rules, and how far it can be trusted."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pipeline import statistics as of_builds
from pipeline.artifacts import Run, Tables
from pipeline.markdown import cell, closing, document, name_of
from pipeline.mining import statistics
from pipeline.mining.caveats import caveats
from pipeline.views import all_tables
from schemas.settings import Settings

CLICKS = """\
> **Warning: clicks are not judgments.** A positive is a document that somebody clicked, that a ranker put first, or
> that an associated query lent; a negative is one that was shown and never clicked, or that ranked lower. Nobody has
> read them."""

TIERS = """\
As in ScalingNote's Table 1. A larger tier holds the smaller ones; a tier is a share of the queries, drawn once and for
all: `tier` in `triplets` is the smallest that holds the query."""

CONFIRMED = "`share` is of the pairs that were looked at and whose replies could be read; an embedded judge is weak."

NIGHTS = "What each day of the log held (bots left out), and the pairs that it was the first to give."

GRAPH = "Of `associations`, `beyond_the_cap` lend nothing: a query takes the best {most} of each kind with evidence."

READING = """\
- DuckDB: `duckdb -init views.sql` in the run's folder; every table is a view.
- datasets: `load_dataset("parquet", data_files="tables/triplets/**/*.parquet")`; folders are tenant, day and source.
- `split` tells train from validation, `tier` small from median and large; `negative_ids` may be empty."""


def mined_card(run: Run, settings: Settings) -> str:
    """The dataset card as Markdown with Hugging Face's front matter; it belongs in the run's folder as README.md.

    Args:
        run: a run; what is not complete yet is left out.
        settings: the settings in force.
    """
    tables = all_tables(run)
    name = name_of(run, settings)
    head = [f"# {cell(name)}", CLICKS, *_warnings(tables), "## What was learned", _learned(run)]
    return document(_front(tables, settings, name), head, _tables(tables, settings), closing(run, settings, READING))


def _front(tables: Tables, settings: Settings, name: str) -> dict[str, Any]:
    front: dict[str, Any] = {"pretty_name": name, "license": settings.card.license}
    front["task_categories"] = ["text-retrieval"]
    if tables.rows("triplets"):
        files = {"split": "train_and_validation", "path": "tables/triplets/**/*.parquet"}
        front["configs"] = [{"config_name": "triplets", "data_files": [files]}]
    return front


def _warnings(tables: Tables) -> Iterator[str]:
    yield from (f"> **Warning:** {cell(sentence)}" for sentence in caveats(tables))


def _learned(run: Run) -> str:
    manifests = run.manifests()
    lines = []
    for stage, what in (("fit_planner", "planner"), ("click_model", "click model")):
        facts = manifests[stage].facts if stage in manifests else {}
        if "version" in facts:
            through = facts["through"]
            basis = f"learned from the log up to {through}" if through else "learned from no click yet"
            lines.append(f"- {what} `{facts['version']}`: {basis}")
    return "\n".join(lines) or "Nothing: any click counts, and the terms' importances are given."


def _tables(tables: Tables, settings: Settings) -> Iterator[tuple[str, pa.Table, str]]:
    most = settings.associate.max_per_query
    yield "Triplets", statistics.sources(tables), ""
    yield "Confirmed by the judge", statistics.confirmed(tables), CONFIRMED
    yield "Tiers", statistics.tiers(tables), TIERS
    yield "Nights", statistics.nights(tables), NIGHTS
    yield "Associations", statistics.graph(tables, most), GRAPH.format(most=most or "(no cap: all)")
    yield "Funnel", of_builds.funnel(tables), "Every row that came in either went on or was dropped for a reason."
