"""Dataset cards of benchmarks and mined runs."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.artifacts.stage import partition_name, partition_of
from darklode.pipeline.base.card import Files, cell, closing, document, name_of, with_front_matter
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.judge.panel import pairwise_kappa, panel_alpha
from darklode.pipeline.judge.probe.stage import PROBE_STAGE
from darklode.pipeline.prepare.split import SPLITS
from darklode.pipeline.report import statistics
from darklode.pipeline.report.grades import GRADES_NOTE, label_grades
from darklode.pipeline.report.label_sets import LABEL_SETS_NOTE, label_sets
from darklode.pipeline.report.mined_caveats import CLICK_LABELS, ranked_mined_caveats
from darklode.pipeline.report.probes import PROBE_NOTE, judge_probe
from darklode.pipeline.validate.gate import release, release_outcome
from darklode.pipeline.validate.stage import is_stale
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TRIPLETS

UNJUDGED_NOTE = "no LLM and no human has judged this dataset"
PARTLY_JUDGED_NOTE = "no LLM has judged this dataset, and people have labelled only a part of it"
WEAK_LABELS_WARNING = """\
> **Warning: {judged}.** The labels come from an embedded scorer, `{judges}`.
> They are weak: do not compare neural retrievers with them."""

AUDIT_NOTE = """\
Recall is relative to the judged positives of the pool, to which every listed retriever contributed. The numbers compare
these retrievers with one another; they overestimate each of them and underestimate retrievers that did not contribute.
`leave_one_out` is the recall of the pool without the retriever."""

OVERLAP_NOTE = "Share of the positives found by either retriever at the pool's depth that both found (Jaccard index)."

LABELS_NOTE = """\
`mean`, `median` and `deviation` (population standard deviation) are positives per query, over queries with at least
one."""

HELD_OUT_NOTE = """\
Near-duplicate queries are in the same split. `share_a_positive` counts queries with a positive that also occurs in a
training triplet; a model may have memorized it, so evaluate these queries separately. `kind` tells whether a query of a
log's test period is new; only `unseen` queries count as a test. `split.group_by` can also separate positives."""

LEAKAGE_NOTE = """\
`split.group_by` decides what is kept apart. Reworded queries have the same words in any order. Sessions and users
(at most the last 28 days of a log) are counted by the searches that support triplets, and sessions by all of their
searches as well."""

STOPPING_NOTE = """\
Pairs were judged in order of predicted relevance until `recall` of the positives was reached with 95 % confidence.
`missed_share` is the estimated share of the pool's positives that were not judged, over all queries, with a 95 %
interval from randomly drawn pairs. `query_missed_share` is the mean of this share per query; no recall is guaranteed
for it. Pairs that were not judged are in `unjudged`; they are neither positives nor negatives."""

CALIBRATION_NOTE = """\
The judge's labels compared with human labels at `threshold`. `ece` is the expected calibration error over the bins
below. `fitted_kappa` was fitted on these labels and is optimistic; `cross_validated_kappa` estimates the value for new
queries. Both are empty if there are too few labels. All values describe the pairs that people chose to label."""

RELIABILITY_NOTE = """\
Share of relevant pairs according to people (`relevant_share`, 95 % Wilson interval) by the judge's
`mean_probability`."""

VALIDATION_NOTE = """\
Estimates for all pairs of the run from a stratified sample labelled by people, with 95 % intervals. `recall` is
relative to the pool's positives; `missed` is the number the judge did not find. `kappa` describes the whole run,
`sample_kappa` the labelled pairs only."""

CONFUSION_NOTE = "Labelled pairs: judge (rows) against people (columns)."

RELEASE_OUTCOMES = {
    "published": "All release requirements are met: the dataset may be published.",
    "held back": "**Held back:** at least one release requirement is not met. An unknown value does not meet it.",
    "not asked": "No release requirement is set.",
}

STALE_REVIEW_WARNING = """\
> **Warning:** The human review refers to other verdicts than these. Run `darklode validate` to update it."""

AGREEMENT_NOTE = "Cohen's kappa of each pair of members, over the pairs that both labelled."
FUNNEL_NOTE = "Each row that entered a step was passed on or dropped for a reason."

READING_NOTES = """\
- DuckDB: `duckdb -init views.sql` in the run folder; each table is a view.
- datasets: `load_dataset("FOLDER", "qrels", split="test")`; also `queries`, `triplets` and `corpus` (one split).
- Other tools: `darklode export RUN --format beir --to FOLDER`; also `trec` and `sentence-transformers`."""

TASK_CATEGORIES = {"task_categories": ["text-retrieval"]}

_HF_SIZES = "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M 10M<n<100M 100M<n<1B".split()
"""Hugging Face size categories; each ends at ten times the previous one."""


def card(run: Run, settings: Settings, warnings: Sequence[str] = ()) -> str:
    """Dataset card (README.md) of a benchmark as Markdown with Hugging Face front matter.

    Args:
        run: a run, possibly incomplete; missing parts are omitted.
        settings: the run's settings.
        warnings: sentences shown at the top.
    """
    outdated = is_stale(run)
    with all_tables(run).open_local() as tables:
        languages = _languages(tables, settings)
        notices = [*_warnings(tables, warnings), *([STALE_REVIEW_WARNING] if outdated else [])]
        card_tables = [*_tables(run, tables, settings), *([] if outdated else _validation(tables))]
    front_matter = {"language": languages, **TASK_CATEGORIES, "size_categories": [_size(tables.rows("chunks"))]}
    text = document([_title(run, settings), *notices], card_tables, closing(run, settings, READING_NOTES))
    return _card(run, settings, text, front_matter, _configs(run))


def _languages(tables: Tables, settings: Settings) -> list[str]:
    """Languages that cleaning made sure of: those of the settings, or found in the kept queries; none if all may be."""
    if settings.clean.keep_all or settings.clean.language is None:
        return []
    if settings.clean.detects_languages:
        parameters = (settings.clean.language_threshold,)
        return list(statistics.languages(tables, *parameters)["language"].to_pylist())
    return list(settings.clean.languages)


CONFIGS = {"corpus": "chunks", "queries": "queries", "qrels": "qrels", "triplets": "triplets"}


def _configs(run: Run) -> Files:
    """Files of each config by split: a table's subfolder per split; chunks have no splits."""
    parts = run.parts()
    partitions = {
        table: {partition_of(part.file) for part in parts.get(table, ()) if part.rows} for table in CONFIGS.values()
    }
    configs: dict[str, dict[str, str]] = {
        config: {split: f"tables/{table}/{split}/*.parquet" for split in SPLITS if split in partitions[table]}
        for config, table in CONFIGS.items()
    }
    return configs | ({"corpus": {"corpus": "tables/chunks/*.parquet"}} if partitions["chunks"] else {})


def _title(run: Run, settings: Settings) -> str:
    return f"# {cell(name_of(run, settings))}"


def _card(run: Run, settings: Settings, text: str, front: Mapping[str, Sequence[str]], configs: Files) -> str:
    """Add the front matter, without empty keys."""
    keys = {"pretty_name": name_of(run, settings), "license": settings.card.license}
    front_matter = {key: values for key, values in front.items() if values}
    return with_front_matter(f"\n{text}", keys | front_matter, configs)


def _size(chunks: int) -> str:
    return next((label for power, label in enumerate(_HF_SIZES, 3) if chunks < 10**power), "n>1B")


TEXT_FORM = {
    "title_heading_text": "A passage is title, heading and text on separate lines, as seen by retrievers and judge.",
    "text": "A passage is its text only (`triplets.text_form`), without the title and heading seen by the judge.",
}
MINED_TEXT_FORM = {
    "title_heading_text": "- A passage is the document's title and the beginning of its text, on separate lines.",
    "text": "- A passage is the beginning of the document's text, without its title (`triplets.text_form`).",
}


def _warnings(tables: Tables, warnings: Sequence[str]) -> Iterator[str]:
    judges = statistics.judges(tables)["judge_id"].to_pylist()
    weak = [judge for judge in judges if judge.startswith("embedded")]
    if weak:
        has_human_labels = statistics.label_sources(tables).num_rows or tables.rows("reviews")
        judged = PARTLY_JUDGED_NOTE if has_human_labels else UNJUDGED_NOTE
        yield WEAK_LABELS_WARNING.format(judges=cell(", ".join(weak)), judged=judged)
    yield from (f"> **Warning:** {' '.join(warning.split())}" for warning in warnings)


def _tables(run: Run, tables: Tables, settings: Settings) -> Iterator[tuple[str, pa.Table, str]]:
    yield "Input", statistics.sizes(tables), ""
    yield "Funnel", statistics.funnel(tables), FUNNEL_NOTE
    yield "Query cleaning", statistics.cleaning(tables), statistics.sampling_note(run)
    yield "Judge", statistics.judges(tables), ""
    yield "Stopping of adaptive judging", statistics.stopping(tables), STOPPING_NOTE
    yield "Judges of the panel", statistics.members(tables), "Verdicts of each member; the table above has the vote."
    yield "Pairwise agreement within the panel", pairwise_kappa(tables), AGREEMENT_NOTE
    yield "Agreement of the panel", panel_alpha(tables), "Krippendorff's alpha, over pairs with at least two labels."
    if not run.is_outdated(PROBE_STAGE):
        yield "Probes of the judge", judge_probe(tables), PROBE_NOTE
    yield "Judge against human labels", statistics.calibration(tables), CALIBRATION_NOTE
    yield "Reliability of the judge's probabilities", statistics.reliability(tables), RELIABILITY_NOTE
    yield "Candidates per query", statistics.pool_sizes(tables), ""
    yield "Candidates by number of retrievers that found them", statistics.pool_found_by(tables), ""
    yield "Labels", statistics.labels(tables), LABELS_NOTE
    yield "Labels by grade", label_grades(tables), GRADES_NOTE
    yield "Label sets", label_sets(tables), LABEL_SETS_NOTE
    yield "Label sources", statistics.label_sources(tables), "A human label replaces the judge's."
    n_negatives = settings.triplets.num_negatives
    negatives_text = f"Up to {n_negatives} negatives per positive. {TEXT_FORM[settings.triplets.text_form]}"
    yield "Triplets", statistics.triplets(tables, n_negatives), negatives_text
    yield "Held-out queries", statistics.held_out(tables), HELD_OUT_NOTE
    yield "Shared by training and validation", statistics.leakage(tables), LEAKAGE_NOTE
    yield "Retriever audit", _audit(statistics.audit_retrievers(tables)), AUDIT_NOTE
    yield "Retriever overlap", statistics.audit_overlap(tables), OVERLAP_NOTE


def _validation(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    figures = release(tables)
    yield "Judge against reviewers", statistics.validated(tables), VALIDATION_NOTE
    yield "Labelled pairs", statistics.confusion(tables), CONFUSION_NOTE
    yield "Judge against reviewers, by tenant", statistics.validated_by_tenant(tables), ""
    by_retriever = statistics.validated_by_retriever(tables)
    yield "Judge against reviewers, by retriever", by_retriever, "For the pairs that each retriever found."
    agreement = "Pairwise Cohen's kappa, and Krippendorff's alpha of all reviewers."
    yield "Agreement between reviewers", statistics.reviewers(tables), agreement
    yield "Release", pa.Table.from_pylist(figures), RELEASE_OUTCOMES[release_outcome(figures)]


def _audit(table: pa.Table) -> pa.Table:
    return table.set_column(0, "tenant", table["tenant"].fill_null("(all)"))


CLICK_LABELS_WARNING = """\
> **Warning: clicks are not relevance judgments.** A positive is a document that was clicked, that a ranker put first,
> or that comes from an associated query; a negative was shown but never clicked, or ranked lower. Nobody has read
> them."""

TIERS_NOTE = """\
Statistics as in ScalingNote, Table 1. Each tier contains the smaller ones. `tier` in `triplets` is the smallest tier
that contains the pair; `share` is its actual share of the pairs."""

VERIFICATION_NOTE = (
    "Share of the checked positives and negatives that the judge calls relevant, with 95 % intervals; unreadable "
    "replies are excluded. `large` contains all pairs of a source. An embedded judge is weak."
)

LOG_DAYS_NOTE = "Impressions, clicks and queries per day of the log, without bots, and new pairs."

ASSOCIATIONS_NOTE = (
    "A query receives evidence from its best {limit} associated queries of each kind; `beyond_the_cap` counts the "
    "others."
)

MINED_READING_NOTES = """\
- DuckDB: `duckdb -init views.sql` in the run folder; each table is a view.
- datasets: `load_dataset("FOLDER", "triplets", split="train")`, or `"validation"`; partitioned by tenant, day and
  source. Test period, if any: `load_dataset("FOLDER", "test", split="test")`. `corpus` has all documents.
- `tier` is small, median or large; `negative_ids` may be empty."""

CHANGED_TRIPLETS_NOTE = """\
- {rows} rows in `triplets` have changed since their files were written; see `triplets_changed` and
  `triplets_removed`. DuckDB views and exports apply these changes, other readers of the files do not."""


NO_TABLES_NOTE = "This card has no figures: run `darklode report` on the run's folder to add them."


def mined_card(run: Run, settings: Settings, *, with_tables: bool = True) -> str:
    """Dataset card (README.md) of a mined run as Markdown with Hugging Face front matter.

    Args:
        run: a run, possibly incomplete; missing parts are omitted.
        settings: the run's settings.
        with_tables: with the tables of figures, which read most tables of the run; otherwise a sentence says how to add
            them.
    """
    with all_tables(run).open_local() as tables:
        caveats = [caveat for caveat in ranked_mined_caveats(tables, settings) if caveat is not CLICK_LABELS]
        warnings = [f"> **Warning:** {cell(caveat.text)}" for caveat in caveats]
        card_tables = list(_mined_tables(tables, settings)) if with_tables else []
    if not with_tables:
        warnings.append(NO_TABLES_NOTE)
    notices = [CLICK_LABELS_WARNING, *warnings, "## Trained models", _models_section(run)]
    text = document(
        [_title(run, settings), *notices], card_tables, closing(run, settings, _mined_reading(run, settings))
    )
    return _card(run, settings, text, TASK_CATEGORIES, _mined_configs(run))


def _mined_reading(run: Run, settings: Settings) -> str:
    """Section on how to read the triplets; it mentions rows that later patches changed."""
    n_changed = sum(part.rows for name in TRIPLETS.files[1:] for part in run.parts().get(name, ()))
    reading = [MINED_READING_NOTES, MINED_TEXT_FORM[settings.triplets.text_form]]
    return "\n".join([*reading, *([CHANGED_TRIPLETS_NOTE.format(rows=f"{n_changed:,}")] if n_changed else [])])


def _mined_configs(run: Run) -> Files:
    """Files of each config by split: triplets have a subfolder per split; the test period is the test split."""
    parts = {table: [part for part in table_parts if part.rows] for table, table_parts in run.parts().items()}
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


def _models_section(run: Run) -> str:
    """List of the run's trained models with the last day of the log that they have seen."""
    manifests = run.manifests()
    lines = []
    for stage, label in (("fit_term_weights", "term weighting"), ("click_model", "click model")):
        facts = manifests[stage].facts if stage in manifests else {}
        if "version" in facts:
            through = facts["through"]
            training_data = f"trained on the log up to {through}" if through else "not trained yet: no clicks"
            lines.append(f"- {label} `{facts['version']}`: {training_data}")
    return "\n".join(lines) or "None: any click counts, and term weights are not trained."


def _mined_tables(tables: Tables, settings: Settings) -> Iterator[tuple[str, pa.Table, str]]:
    """Yield title, table and note of each table of the card."""
    max_associations = settings.associate.max_lenders_per_query
    yield "Triplets", statistics.triplet_tiers(tables), ""
    yield "Held-out queries", statistics.held_out(tables), HELD_OUT_NOTE
    yield "Shared by training and validation", statistics.leakage(tables), LEAKAGE_NOTE
    yield "Share that the judge calls relevant", statistics.verified_shares(tables), VERIFICATION_NOTE
    yield "Tiers", statistics.tiers(tables), TIERS_NOTE
    yield "Days of the log", statistics.nights(tables), LOG_DAYS_NOTE
    associations = statistics.association_counts(tables, max_associations)
    yield "Associations", associations, ASSOCIATIONS_NOTE.format(limit=max_associations or "(no cap)")
    yield "Funnel", statistics.funnel(tables), FUNNEL_NOTE
