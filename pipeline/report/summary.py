"""Head of the report, and the summary on screen: kind, key facts, judges, warnings and next commands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveat import Caveat
from darklode.pipeline.report.caveats import ranked_caveats, weak_labels
from darklode.pipeline.report.formatting import number, strip_bidi_controls
from darklode.pipeline.report.key_facts import KeyFact, key_facts
from darklode.pipeline.report.mined_caveats import CLICK_LABELS, ranked_mined_caveats
from darklode.pipeline.report.next_steps import NextStep, next_steps
from darklode.pipeline.report.source import ReportSource, incomplete, outdated_by_other_jobs
from darklode.schemas.judging import NO_JUDGE

MAX_JUDGES = 6
N_FIRST_WARNINGS = 3
"""Number of warnings that are shown at once; the others are in a list to open."""

WEAK_LABELS_BADGE, CLICK_LABELS_BADGE = "weak labels", "clicks, not judgments"
UNFINISHED_TITLE = "This run is incomplete"
OUTDATED_TITLE = "Some figures are outdated"

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
    """The decision on a trained encoder; `loud` makes it prominent."""

    title: str
    text: str
    loud: bool = True


@dataclass(frozen=True)
class PageHeader:
    """Head of a report.

    Attributes:
        facts: what the run holds and how good it is.
        warnings: the most important first.
        next_steps: the commands to run next, the most important first.
        judges: ids of the judges, at most MAX_JUDGES.
        notices: decisions on a trained encoder.
        badge: shown beside sections that depend on weak labels.
    """

    name: str
    kind: str
    finished: str
    facts: Sequence[KeyFact]
    warnings: Sequence[Caveat]
    next_steps: Sequence[NextStep]
    judges: Sequence[str]
    more_judges: int
    notices: Sequence[Notice]
    badge: str

    @property
    def first_warnings(self) -> Sequence[Caveat]:
        """The most important warnings."""
        return self.warnings[:N_FIRST_WARNINGS]

    @property
    def more_warnings(self) -> Sequence[Caveat]:
        """The other warnings."""
        return self.warnings[N_FIRST_WARNINGS:]


def header(source: ReportSource) -> PageHeader:
    """Collect the head of a run's report."""
    judges = statistics.judges(source.tables)["judge_id"].to_pylist()
    judges += source.tables.sql(MINED_JUDGES_SQL)["judge_id"].to_pylist()
    weak = weak_labels(judges)
    return PageHeader(
        source.name,
        _kind(source),
        _time(max((manifest.finished for manifest in source.manifests.values()), default="")),
        key_facts(source) or list(_sizes(source)),
        [_without_controls(caveat) for caveat in _warnings(source, weak)],
        next_steps(source),
        judges[:MAX_JUDGES],
        max(0, len(judges) - MAX_JUDGES),
        list(_decision_notices(source)) if source.adapted else [],
        WEAK_LABELS_BADGE if weak else CLICK_LABELS_BADGE if source.mined else "",
    )


def _kind(source: ReportSource) -> str:
    if source.laws:
        return "Scaling laws of labelled data"
    if source.generated:
        return "Generated queries"
    if source.adapted:
        return f"Query encoder {source.adapted}"
    if source.mined:
        return "Triplets mined from a search log"
    has_judge = source.settings.judge.kind != NO_JUDGE
    return "Judged benchmark and triplets" if has_judge else "Benchmark and triplets from given judgments"


def _time(iso: str) -> str:
    return f"{iso[:10]} {iso[11:16]} UTC" if iso else ""


def _sizes(source: ReportSource) -> Iterator[KeyFact]:
    for label, sql in _count_queries(source).items():
        yield KeyFact(f"{label[0].upper()}{label[1:]}", number(source.tables.sql(sql)["n"][0].as_py()))


def _count_queries(source: ReportSource) -> dict[str, str]:
    """SQL of the sizes by label for folders that are neither benchmark nor mined run; otherwise empty."""
    if source.laws:
        return LAWS_SIZES_SQL
    if source.generated:
        return GENERATED_SIZES_SQL
    if source.adapted:
        return DISTILLED_SIZES_SQL if "tower_queries" in source.written_tables else ADAPTED_SIZES_SQL
    return {}


def _warnings(source: ReportSource, weak: Sequence[Caveat]) -> Iterator[Caveat]:
    """The warnings, the most important first."""
    outdated = outdated_by_other_jobs(source)
    unfinished_stages = incomplete(source).keys() - outdated.keys()
    if unfinished_stages:
        stages = "; ".join(f"{stage}: {state}" for stage, state in incomplete(source).items() if stage not in outdated)
        text = f"The report covers the complete stages. Run the same command again to continue. {stages}."
        yield Caveat(UNFINISHED_TITLE, text, "stages")
    if outdated:
        text = f"Their input tables have changed since, or they did not finish: {', '.join(outdated)}."
        yield Caveat(OUTDATED_TITLE, f"{text} Run the commands that made them again.", "stages")
    yield from weak
    yield from _caveats(source)


def _without_controls(caveat: Caveat) -> Caveat:
    """The caveat without the controls of text direction that names of the data may contain."""
    return Caveat(strip_bidi_controls(caveat.headline), strip_bidi_controls(caveat.text), caveat.figure)


def _decision_notices(source: ReportSource) -> Iterator[Notice]:
    """The released encoder; prominent if it is the base encoder."""
    for row in source.tables.read("adapter_verdict").to_pylist():
        is_base = row["shipped"] == "base"
        title = "Not adapted: the base encoder is released" if is_base else "The adapted encoder is released"
        reason = strip_bidi_controls(row["reason"])
        yield Notice(title, f"{reason[:1].upper()}{reason[1:]}.", loud=is_base)
        if row["label_bias"]:
            yield Notice(LABEL_BIAS_TITLE, f"{strip_bidi_controls(row['label_bias'])}.")
    for row in source.tables.read("swap_verdict").to_pylist():
        needs_new_vectors = row["shipped"] == "none"
        title = "Not released: re-embedding is needed" if needs_new_vectors else "The mapped encoder is released"
        reason = strip_bidi_controls(row["reason"])
        yield Notice(title, f"{reason[:1].upper()}{reason[1:]}.", loud=needs_new_vectors)


def _caveats(source: ReportSource) -> Iterator[Caveat]:
    """Caveats of finished labels or triplets."""
    written = source.written_tables
    if source.adapted:
        yield from map(Caveat, ADAPTED_CAVEATS if "adapter_verdict" in written else ())
    elif source.generated:
        yield from map(Caveat, GENERATED_CAVEATS if "generated_queries" in written else ())
    elif source.mined:
        has_triplets = "mined_triplets" in source.manifests
        yield from ranked_mined_caveats(source.tables, source.settings) if has_triplets else [CLICK_LABELS]
    elif "label" in source.manifests:
        yield from ranked_caveats(source.tables, source.settings)
