"""The dataset cards of a run: what the data is, where it came from, and how far it can be trusted."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.artifacts.stage import partition_name, partition_of
from darklode.pipeline.base.card import Files, cell, closing, document, name_of, with_front_matter
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.judge.panel import pairwise_kappa, panel_alpha
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import mined_caveats
from darklode.pipeline.validate.gate import release, release_outcome
from darklode.pipeline.validate.stage import stale
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TRIPLETS

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

HELD_OUT = """\
Near-duplicates of a query stand on its side. `share_a_positive` counts queries of which a positive is one of a training
triplet, too: what was learned by heart is found again there, so measure the others apart. `kind` says how new a query
of a log's later period is: only `unseen` ones count as a test. `split.group_by` can keep positives apart as well."""

STOPPED = """\
The likeliest pairs were judged first, until `recall` of the positives was found with 95 % confidence. `missed_share` is
estimated from the pairs drawn at random, with its 95 % interval; it is of the pool's positives by this judge, all
queries together. `query_missed_share` is the same by query, so that one with a single positive counts as much as one
with fifty; no recall was promised for it. What was not judged is in `unjudged`: neither positive nor negative."""
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
- datasets: `load_dataset("FOLDER", "qrels", split="test")`; also `queries`, `triplets` and `corpus` (one split).
- Other tools: `darklode export RUN --format beir --to FOLDER`; also `trec` and `sentence-transformers`."""

TASK = {"task_categories": ["text-retrieval"]}

_HF_SIZES = "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M 10M<n<100M 100M<n<1B".split()
"""Hugging Face's size categories: each ends at ten times the one before."""


def card(run: Run, settings: Settings, warnings: Sequence[str] = ()) -> str:
    """The dataset card as Markdown with Hugging Face's front matter; it belongs in the run's folder as README.md.

    Args:
        run: a run; what is not complete yet is left out.
        settings: the settings in force.
        warnings: what the reader must know, each a sentence; printed before everything else.
    """
    outdated = stale(run)
    with all_tables(run).open_local() as tables:
        head = [*_warnings(tables, warnings), *([STALE] if outdated else [])]
        shown = [*_tables(run, tables, settings), *([] if outdated else _validation(tables))]
    language = () if settings.clean.keep_all else settings.clean.languages
    front = {"language": [*language], **TASK, "size_categories": [_size(tables.rows("chunks"))]}
    text = document([_title(run, settings), *head], shown, closing(run, settings, READING))
    return _card(run, settings, text, front, _configs(run))


CONFIGS = {"corpus": "chunks", "queries": "queries", "qrels": "qrels", "triplets": "triplets"}
SPLITS = ("train", "validation", "test")


def _configs(run: Run) -> Files:
    """Files of each config by split: a table's folder of that name; chunks, which have none, serve all splits."""
    parts = run.parts()
    full = {table: [part for part in parts.get(table, ()) if part.rows] for table in CONFIGS.values()}
    partitions = {table: {partition_of(part.file) for part in some} for table, some in full.items()}
    configs: dict[str, dict[str, str]] = {
        config: {split: f"tables/{table}/{split}/*.parquet" for split in SPLITS if split in partitions[table]}
        for config, table in CONFIGS.items()
    }
    return configs | ({"corpus": {"corpus": "tables/chunks/*.parquet"}} if partitions["chunks"] else {})


def _title(run: Run, settings: Settings) -> str:
    return f"# {cell(name_of(run, settings))}"


def _card(run: Run, settings: Settings, text: str, front: Mapping[str, Sequence[str]], configs: Files) -> str:
    """A card of any run: keys of the front matter that are empty are left out."""
    keys = {"pretty_name": name_of(run, settings), "license": settings.card.license}
    front_matter = {key: values for key, values in front.items() if values}
    return with_front_matter(f"\n{text}", keys | front_matter, configs)


def _size(chunks: int) -> str:
    return next((label for power, label in enumerate(_HF_SIZES, 3) if chunks < 10**power), "n>1B")


TEXT_FORM = {
    "title_heading_text": "A passage is title, heading and text, one a line, as retrievers and judge read it.",
    "text": "A passage is its text alone (`triplets.text_form`), without the title and heading that the judge read.",
}
MINED_TEXT_FORM = {
    "title_heading_text": "- A passage is the document's title and the beginning of its text, one a line.",
    "text": "- A passage is the beginning of the document's text, without its title (`triplets.text_form`).",
}


def _warnings(tables: Tables, warnings: Sequence[str]) -> Iterator[str]:
    judges = statistics.judges(tables)["judge_id"].to_pylist()
    weak = [judge for judge in judges if judge.startswith("embedded")]
    if weak:
        people = statistics.label_sources(tables).num_rows or tables.rows("reviews")
        part = "no LLM has judged this, and people only a part of it"
        yield NO_LLM.format(judges=cell(", ".join(weak)), nobody=part if people else NOBODY)
    yield from (f"> **Warning:** {' '.join(warning.split())}" for warning in warnings)


def _tables(run: Run, tables: Tables, settings: Settings) -> Iterator[tuple[str, pa.Table, str]]:
    yield "What went in", statistics.sizes(tables), ""
    yield "Funnel", statistics.funnel(tables), "Every row that came in either went on or was dropped for a reason."
    yield "What cleaning dropped", statistics.cleaning(tables), statistics.sampling_note(run)
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
    yield "Whose labels", statistics.label_sources(tables), "Where people labelled a pair, their label stands."
    n_negatives = settings.triplets.num_negatives
    negatives_text = f"{n_negatives} negatives were asked for per positive. {TEXT_FORM[settings.triplets.text_form]}"
    yield "Triplets", statistics.triplets(tables, n_negatives), negatives_text
    yield "Held-out queries", statistics.held_out(tables), HELD_OUT
    yield "Audit of the retrievers", _audit(statistics.audit_retrievers(tables)), OWN_POSITIVES
    yield "Overlap of the retrievers", statistics.audit_overlap(tables), OVERLAP


def _validation(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    figures = release(tables)
    yield "The judge against reviewers", statistics.validated(tables), REVIEWED
    yield "Labelled pairs", statistics.confusion(tables), COUNTED
    yield "The judge against reviewers, by tenant", statistics.validated_by_tenant(tables), ""
    yield (
        "The judge against reviewers, by retriever",
        statistics.validated_by_retriever(tables),
        "Of the pairs that each found.",
    )
    yield "Between reviewers", statistics.reviewers(tables), "Cohen's kappa of each two, Krippendorff's alpha of all."
    yield "Release", pa.Table.from_pylist(figures), OUTCOMES[release_outcome(figures)]


def _audit(table: pa.Table) -> pa.Table:
    everyone = table["tenant"].fill_null("(all)")
    return table.set_column(0, "tenant", everyone)


CLICKS = """\
> **Warning: clicks are not judgments.** A positive is a document that somebody clicked, that a ranker put first, or
> that an associated query lent; a negative is one that was shown and never clicked, or that ranked lower. Nobody has
> read them."""

TIERS = """\
As in ScalingNote's Table 1. A larger tier holds the smaller ones; a tier is a share of the pairs, drawn once and for
all: `tier` in `triplets` is the smallest that holds the pair. `share` is what was obtained."""

CONFIRMED = (
    "Shares of the positives and of the negatives that were looked at, and whose replies could be read, with 95 % "
    "intervals. A tier holds the smaller ones: `large` stands for its source. An embedded judge is weak."
)

NIGHTS = "What each day of the log held (bots left out), and the pairs that it was the first to give."

GRAPH = "Of `associations`, `beyond_the_cap` lend nothing: a query takes the best {most} of each kind with evidence."

MINED_READING = """\
- DuckDB: `duckdb -init views.sql` in the run's folder; every table is a view.
- datasets: `load_dataset("FOLDER", "triplets", split="train")`, or `"validation"`; folders are tenant, day and source.
  Of a later period, where there is one: `load_dataset("FOLDER", "test", split="test")`; `corpus` has all documents.
- `tier` tells small from median and large; `negative_ids` may be empty."""

CHANGED = """\
- {rows} rows of days in `triplets` have changed since these files were written: `triplets_changed` and
  `triplets_removed` say how. DuckDB's views and exports apply them, other readers of the files do not."""


def mined_card(run: Run, settings: Settings) -> str:
    """The dataset card as Markdown with Hugging Face's front matter; it belongs in the run's folder as README.md.

    Args:
        run: a run; what is not complete yet is left out.
        settings: the settings in force.
    """
    with all_tables(run).open_local() as tables:
        warnings = [f"> **Warning:** {cell(sentence)}" for sentence in mined_caveats(tables)]
        shown = list(_mined_tables(tables, settings))
    head = [CLICKS, *warnings, "## What was learned", _learned_section(run)]
    text = document([_title(run, settings), *head], shown, closing(run, settings, _mined_reading(run, settings)))
    return _card(run, settings, text, TASK, _mined_configs(run))


def _mined_reading(run: Run, settings: Settings) -> str:
    changed = sum(part.rows for name in TRIPLETS.files[1:] for part in run.parts().get(name, ()))
    reading = [MINED_READING, MINED_TEXT_FORM[settings.triplets.text_form]]
    return "\n".join([*reading, *([CHANGED.format(rows=f"{changed:,}")] if changed else [])])


def _mined_configs(run: Run) -> Files:
    """Files of each config by split: triplets lie in a folder a split, what is of a later period is the test split."""
    parts = {table: [part for part in some if part.rows] for table, some in run.parts().items()}
    folders = {part.file.split("/")[-2] for part in parts.get("triplets", ())}
    split_folders = {split: partition_name({"split": split}) for split in SPLITS}
    return {
        "triplets": {
            split: f"tables/triplets/**/{folder}/*.parquet"
            for split, folder in split_folders.items()
            if folder in folders
        },
        "test": {"test": "tables/mined_test/*.parquet"} if parts.get("mined_test") else {},
        "corpus": {"corpus": "tables/documents/*.parquet"} if parts.get("documents") else {},
    }


def _learned_section(run: Run) -> str:
    manifests = run.manifests()
    lines = []
    for stage, label in (("fit_planner", "planner"), ("click_model", "click model")):
        facts = manifests[stage].facts if stage in manifests else {}
        if "version" in facts:
            through = facts["through"]
            basis = f"learned from the log up to {through}" if through else "learned from no click yet"
            lines.append(f"- {label} `{facts['version']}`: {basis}")
    return "\n".join(lines) or "Nothing: any click counts, and the terms' importances are given."


def _mined_tables(tables: Tables, settings: Settings) -> Iterator[tuple[str, pa.Table, str]]:
    max_associations = settings.associate.max_lenders_per_query
    yield "Triplets", statistics.triplet_tiers(tables), ""
    yield "Held-out queries", statistics.held_out(tables), HELD_OUT
    yield "Relevant to the judge", statistics.confirmed(tables), CONFIRMED
    yield "Tiers", statistics.tiers(tables), TIERS
    yield "Nights", statistics.nights(tables), NIGHTS
    yield (
        "Associations",
        statistics.lenders(tables, max_associations),
        GRAPH.format(most=max_associations or "(no cap: all)"),
    )
    yield "Funnel", statistics.funnel(tables), "Every row that came in either went on or was dropped for a reason."
