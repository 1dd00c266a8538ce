"""The dataset card: what the data is, where it came from, and how far it can be trusted."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pipeline import statistics, validated
from pipeline.agreement import pairwise_kappa, panel_alpha
from pipeline.artifacts import Run, Tables
from pipeline.markdown import cell, closing, document, name_of
from pipeline.views import all_tables
from schemas.settings import Settings

NOBODY = "no LLM and no human has judged this"
NO_LLM = """\
> **Warning: {nobody}.** The labels come from an embedded scorer, `{judges}`.
> They are weak. Never compare neural retrievers on them."""

OWN_POSITIVES = """\
Recall is against the judged positives of the pool. A retriever's own positives count toward it, since every retriever
fed the pool: the numbers compare these retrievers, and are too high for any of them and too low for one that did not
take part. `leave_one_out` is the recall of the pool without the retriever."""

OVERLAP = "Of the positives that either retriever found at the pool's depth, the share that both found (Jaccard)."

GOLDEN = """\
`mean`, `median` and `deviation` (population standard deviation) are of golden chunks per query, over the queries with
at least one."""

STOPPED = """\
The likeliest pairs were judged first, until `recall` of the positives was found with 95 % confidence. `missed_share` is
estimated from the pairs drawn at random, with its 95 % interval; it is of the pool's positives by this judge, all
queries together. What was not judged is in `unjudged`: neither positive nor negative."""
HUMAN = """\
The judge's labels against people's, at `threshold`. `ece` is the expected calibration error over the bins below.
`fitted_kappa` was fitted on these labels and flatters; `cross_validated_kappa` is what to expect of new queries. Both
are empty where labels are too few. All of it speaks of the pairs that people chose to label."""

CURVE = """\
Of pairs to which the judge gave `mean_probability`, people found `relevant_share` relevant (95 % Wilson interval)."""

REVIEWED = """\
Estimated for all pairs of the run from a stratified sample that people labelled; 95 % intervals. `recall` is of
the pool's positives, `missed` those that the judge did not find. `kappa` is of the whole run, `sample_kappa` of the
labelled pairs alone."""

COUNTED = "Of the labelled pairs: what the judge said (rows), and what people said (columns)."

OUTCOMES = {
    "published": "Everything that was asked for was reached: the dataset may be published.",
    "held back": "**Held back:** not everything that was asked for was reached. What is unknown does not pass.",
    "not asked": "Nothing was asked for.",
}

STALE = """\
> **Warning:** People reviewed other verdicts than these. `darklode validate` compares these with what they said."""

AGREEMENT = "Cohen's kappa of each two members, over the pairs that both labelled."

READING = """\
- DuckDB: `duckdb -init views.sql` in the run's folder; every table is a view.
- datasets: `load_dataset("parquet", data_files="tables/triplets/*.parquet")`; the column `split` tells train from
  validation.
- Other tools: `darklode export RUN --format beir --to FOLDER`; also `trec` and `sentence-transformers`."""

_HF_SIZES = "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M 10M<n<100M 100M<n<1B".split()
"""Hugging Face's size categories: each ends at ten times the one before."""


def card(run: Run, settings: Settings, warnings: Sequence[str] = ()) -> str:
    """The dataset card as Markdown with Hugging Face's front matter; it belongs in the run's folder as README.md.

    Args:
        run: a run; what is not complete yet is left out.
        settings: the settings in force.
        warnings: what the reader must know, each a sentence; printed before everything else.
    """
    tables = all_tables(run)
    name = name_of(run, settings)
    stale = validated.stale(run)
    head = [f"# {cell(name)}", *_warnings(tables, warnings), *([STALE] if stale else [])]
    shown = [*_tables(tables, settings), *([] if stale else _validation(tables))]
    return document(_front(tables, settings, name), head, shown, closing(run, settings, READING))


def _front(tables: Tables, settings: Settings, name: str) -> dict[str, Any]:
    front: dict[str, Any] = {"pretty_name": name, "license": settings.card.license}
    if settings.clean.language and not settings.clean.keep_all:
        front["language"] = [settings.clean.language]
    front["task_categories"] = ["text-retrieval"]
    front["size_categories"] = [_size(tables.rows("chunks"))]
    if tables.rows("triplets"):
        files = {"split": "train_and_validation", "path": "tables/triplets/*.parquet"}
        front["configs"] = [{"config_name": "triplets", "data_files": [files]}]
    return front


def _size(chunks: int) -> str:
    return next((label for power, label in enumerate(_HF_SIZES, 3) if chunks < 10**power), "n>1B")


def _warnings(tables: Tables, warnings: Sequence[str]) -> Iterator[str]:
    judges = statistics.judges(tables)["judge_id"].to_pylist()
    weak = [judge for judge in judges if judge.startswith("embedded")]
    if weak:
        people = validated.sources(tables).num_rows or tables.rows("reviews")
        part = "no LLM has judged this, and people only a part of it"
        yield NO_LLM.format(judges=cell(", ".join(weak)), nobody=part if people else NOBODY)
    yield from (f"> **Warning:** {' '.join(warning.split())}" for warning in warnings)


def _tables(tables: Tables, settings: Settings) -> Iterator[tuple[str, pa.Table, str]]:
    yield "What went in", statistics.sizes(tables), ""
    yield "Funnel", statistics.funnel(tables), "Every row that came in either went on or was dropped for a reason."
    yield "Judge", statistics.judges(tables), ""
    yield "Where judging stopped", statistics.stopping(tables), STOPPED
    yield "Judges of the panel", statistics.members(tables), "What each said; the vote is above."
    yield "Agreement within the panel", pairwise_kappa(tables), AGREEMENT
    yield (
        "Agreement of the whole panel",
        panel_alpha(tables),
        "Krippendorff's alpha, over pairs with two labels or more.",
    )
    yield "The judge against people", statistics.calibration(tables), HUMAN
    yield "Reliability of the judge's probabilities", statistics.reliability(tables), CURVE
    yield "Candidates per query", statistics.pool_sizes(tables), ""
    yield "Candidates by the number of retrievers that found them", statistics.pool_found_by(tables), ""
    yield "Labels", statistics.labels(tables), GOLDEN
    yield "Whose labels", validated.sources(tables), "Where people labelled a pair, their label stands."
    wanted = settings.triplets.negatives
    yield "Triplets", statistics.triplets(tables, wanted), f"{wanted} negatives were asked for per positive."
    yield "Audit of the retrievers", _audit(statistics.audit_retrievers(tables)), OWN_POSITIVES
    yield "Overlap of the retrievers", statistics.audit_overlap(tables), OVERLAP


def _validation(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    release = validated.release(tables)
    yield "The judge against reviewers", validated.everything(tables), REVIEWED
    yield "Labelled pairs", validated.confusion(tables), COUNTED
    yield "The judge against reviewers, by tenant", validated.by_tenant(tables), ""
    yield "The judge against reviewers, by retriever", validated.by_retriever(tables), "Of the pairs that each found."
    yield "Between reviewers", validated.reviewers(tables), "Cohen's kappa of each two, Krippendorff's alpha of all."
    yield "Release", pa.Table.from_pylist(release), OUTCOMES[validated.outcome(release)]


def _audit(table: pa.Table) -> pa.Table:
    everyone = table["tenant"].fill_null("(all)")
    return table.set_column(0, "tenant", everyone)
