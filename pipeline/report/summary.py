"""Header of the report: kind, size, judges and warnings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import caveats, mined_caveats, weak_ranker
from darklode.pipeline.report.formatting import number, strip_bidi_controls
from darklode.pipeline.report.label_sets import label_sets
from darklode.pipeline.report.source import ReportSource, incomplete

MAX_JUDGES = 6

WEAK_LABELS_TEXT = (
    "The labels come from the embedded scorer, not from an LLM. They show how Darklode works but are too weak to "
    "rely on: do not compare neural retrievers with them, and do not publish them as a benchmark. For better labels, "
    "use --preset local, or an LLM judge (judge.kind: llm)."
)
WEAK_LABELS_TITLE = "Weak labels from the embedded scorer"
CLICK_LABELS_TITLE = "Clicks are not relevance judgments"
CLICK_LABELS_TEXT = (
    "A positive is a document that was clicked, that a ranker put first, or that comes from an associated query; a "
    "negative was shown but never clicked, or ranked lower. Nobody has read them."
)
WEAK_LABELS_BADGE, CLICK_LABELS_BADGE = "weak labels", "clicks, not judgments"
UNFINISHED_TITLE = "This run is incomplete"

BENCHMARK_SIZES = {
    "documents": "documents",
    "chunks": "chunks",
    "raw_queries": "raw queries",
    "queries": "kept queries",
    "pool": "candidates",
    "verdicts": "verdicts",
    "triplets": "triplets",
}
MINED_SIZES = {
    "documents": "documents",
    "impressions": "impressions",
    "log_queries": "queries in the log",
    "associations": "associations",
    "mined_pairs": "pairs",
    "triplets": "triplets",
}
LABEL_BIAS_TITLE = "The labels favour the base encoder"
ADAPTED_CAVEATS = (
    "The labels come from the training runs; if a judge made them, the gain is measured with that judge.",
    "Texts without a label count as not relevant; compare Judged@10, the share of the top 10 that has a label.",
    "Document vectors and index are unchanged: use this encoder for queries only, with its base encoder's index.",
)
ADAPTED_SIZES_SQL = {
    "training queries": "SELECT count(*) AS n FROM adaptation_queries WHERE split = 'train'",
    "validation queries": "SELECT count(*) AS n FROM adaptation_queries WHERE split = 'validation'",
    "test queries": "SELECT count(*) AS n FROM adaptation_queries WHERE split = 'test'",
    "texts searched": "SELECT count(*) AS n FROM adaptation_texts",
    "trials": "SELECT count(DISTINCT trial) AS n FROM adaptation_trials",
}
DISTILLED_SIZES_SQL = {
    "training queries": "SELECT count(*) AS n FROM tower_queries WHERE split = 'train'",
    "held-out queries": "SELECT count(*) AS n FROM tower_queries WHERE split = 'validation'",
    "unseen queries": "SELECT count(*) AS n FROM tower_queries WHERE split = 'unseen'",
    "trials": "SELECT count(*) AS n FROM distillation_trials",
}
GENERATED_SIZES_SQL = {
    "documents": "SELECT count(*) AS n FROM generation_documents",
    "texts with queries": "SELECT count(*) AS n FROM generation_texts",
    "generated queries": "SELECT count(*) AS n FROM written_queries WHERE text IS NOT NULL",
    "kept queries": "SELECT count(*) FILTER (kept) AS n FROM generated_queries",
}
GENERATED_CAVEATS = (
    "The queries are synthetic and belong to the train split; measure the gain of a model on real queries only.",
    "If the same language model generates and judges the queries, its verdicts are not independent.",
)
LAWS_SIZES_SQL = {
    "encoders trained": """
        SELECT count(DISTINCT (coalesce(encoder_id, encoder), source, size, parameters, seed)) AS n
        FROM law_points WHERE size > 0
    """,
    "laws found": "SELECT count(*) FILTER (verdict = 'law') AS n FROM law_verdicts",
    "laws tested": "SELECT count(*) AS n FROM law_verdicts",
}
MINED_JUDGES_SQL = "SELECT DISTINCT judge_id FROM mined_verdicts ORDER BY judge_id"


@dataclass(frozen=True)
class Notice:
    """A warning or note; `loud` makes it prominent, `items` is a list below the text."""

    title: str
    text: str
    items: Sequence[str] = ()
    loud: bool = True


@dataclass(frozen=True)
class PageHeader:
    """Header of the page; `badge` is shown beside sections that depend on weak labels."""

    name: str
    kind: str
    finished: str
    sizes: Sequence[tuple[str, str]]
    judges: Sequence[str]
    more_judges: int
    warnings: Sequence[Notice]
    badge: str


def header(source: ReportSource) -> PageHeader:
    """Collect the header of a run."""
    judges = statistics.judges(source.tables)["judge_id"].to_pylist()
    judges += source.tables.sql(MINED_JUDGES_SQL)["judge_id"].to_pylist()
    weak = [judge for judge in judges if judge.startswith("embedded")]
    return PageHeader(
        source.name,
        _kind(source),
        _time(max((manifest.finished for manifest in source.manifests.values()), default="")),
        list(_sizes(source)),
        judges[:MAX_JUDGES],
        max(0, len(judges) - MAX_JUDGES),
        list(_warnings(source, weak)),
        WEAK_LABELS_BADGE if weak else CLICK_LABELS_BADGE if source.mined else "",
    )


def _kind(source: ReportSource) -> str:
    if source.laws:
        return "Scaling laws of labelled data"
    if source.generated:
        return "Generated queries"
    if source.adapted:
        return f"Query encoder {source.adapted}"
    return "Triplets mined from a search log" if source.mined else "Judged benchmark and triplets"


def _time(iso: str) -> str:
    return f"{iso[:10]} {iso[11:16]} UTC" if iso else ""


def _sizes(source: ReportSource) -> Iterator[tuple[str, str]]:
    count_queries = _count_queries(source)
    if count_queries:
        for label, sql in count_queries.items():
            yield label, number(source.tables.sql(sql)["n"][0].as_py())
        return
    for table, label in (MINED_SIZES if source.mined else BENCHMARK_SIZES).items():
        if table in source.written_tables:
            if table == "triplets" and "qrels" in source.written_tables:
                yield from _label_set_sizes(source.tables)
            else:
                yield label, number(source.tables.rows(table))


def _label_set_sizes(tables: Tables) -> Iterator[tuple[str, str]]:
    """Positives of the test labels and triplets, with the share of relevant ones, if it is known."""
    for row in label_sets(tables).to_pylist():
        name = "test positives" if row["labels"] == "test labels" else "triplets"
        share = "" if row["precision"] is None else f", {row['precision']:.0%} relevant (est.)"
        yield f"{name}{share}", number(row["positives"])


def _count_queries(source: ReportSource) -> dict[str, str]:
    """SQL of the sizes by label for folders that are neither benchmark nor mined run; otherwise empty."""
    if source.laws:
        return LAWS_SIZES_SQL
    if source.generated:
        return GENERATED_SIZES_SQL
    if source.adapted:
        return DISTILLED_SIZES_SQL if "tower_queries" in source.written_tables else ADAPTED_SIZES_SQL
    return {}


def _warnings(source: ReportSource, weak: Sequence[str]) -> Iterator[Notice]:
    missing = incomplete(source)
    if missing:
        incomplete_note = "The report covers the complete stages. Run the same command again to continue."
        yield Notice(UNFINISHED_TITLE, incomplete_note, [f"{stage}: {state}" for stage, state in missing.items()])
    if source.adapted:
        yield from _decision_notices(source)
    if weak:
        yield Notice(WEAK_LABELS_TITLE, WEAK_LABELS_TEXT)
    if source.mined:
        yield Notice(CLICK_LABELS_TITLE, f"{CLICK_LABELS_TEXT} {weak_ranker(source.settings)}".rstrip())
    caveat_text = _caveats(source)
    if caveat_text:
        yield Notice("Known limitations", "", [strip_bidi_controls(sentence) for sentence in caveat_text], loud=False)


def _decision_notices(source: ReportSource) -> Iterator[Notice]:
    """The released encoder; prominent if it is the base encoder."""
    for row in source.tables.read("adapter_verdict").to_pylist():
        is_base = row["shipped"] == "base"
        title = "Not adapted: the base encoder is released" if is_base else "The adapted encoder is released"
        reason = strip_bidi_controls(row["reason"])
        yield Notice(title, f"{reason[:1].upper()}{reason[1:]}.", loud=is_base)
        if row["label_bias"]:
            yield Notice(LABEL_BIAS_TITLE, f"{strip_bidi_controls(row['label_bias'])}.")


def _caveats(source: ReportSource) -> list[str]:
    """Caveats of finished labels or triplets."""
    if source.adapted:
        return [*ADAPTED_CAVEATS] if "adapter_verdict" in source.written_tables else []
    if source.generated:
        return [*GENERATED_CAVEATS] if "generated_queries" in source.written_tables else []
    if source.mined:
        if "mined_triplets" not in source.manifests:
            return []
        from darklode.pipeline.report.favored_systems import favored_systems  # slow to import

        return [*mined_caveats(source.tables), *favored_systems(source.tables, source.settings)]
    return caveats(source.tables, source.settings) if "label" in source.manifests else []
