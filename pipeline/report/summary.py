"""The head of a report: what the run is, how large, by whom it was judged, and what must be known first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import caveats, mined_caveats, weak_ranker
from darklode.pipeline.report.formatting import level, number
from darklode.pipeline.report.source import ReportSource, incomplete

JUDGES_NAMED = 6

NO_LLM = (
    "No LLM has judged this. The labels are good enough to see the whole job work, and too weak to trust: never "
    "compare neural retrievers on them, and never publish them as a benchmark."
)
NO_LLM_TITLE = "Weak labels by the embedded scorer"
CLICKS_TITLE = "Clicks are not judgments"
CLICKS = (
    "A positive is a document that somebody clicked, that a ranker put first, or that an associated query lent; a "
    "negative is one that was shown and never clicked, or that ranked lower. Nobody has read them."
)
WEAK, NOT_JUDGED = "weak labels", "clicks, not judgments"
UNFINISHED_TITLE = "This run is not complete"

BUILT = {
    "documents": "documents",
    "chunks": "chunks",
    "raw_queries": "raw queries",
    "queries": "queries kept",
    "pool": "candidates",
    "verdicts": "verdicts",
    "triplets": "triplets",
}
MINED = {
    "documents": "documents",
    "impressions": "impressions",
    "log_queries": "queries of the log",
    "associations": "associations",
    "mined_pairs": "pairs",
    "triplets": "triplets",
}
ADAPTED_CAVEATS = (
    "The labels are those of the runs that it learned from: where a judge gave them, a lift is a lift by that judge.",
    "Texts that nobody judged count as not relevant: compare Judged@10, the share of the first ten that has a label.",
    "Documents and their index are unchanged: this encoder is for queries alone, and only against its base's index.",
)
ADAPTED = {
    "queries to learn from": "SELECT count(*) AS n FROM adaptation_queries WHERE split = 'train'",
    "validation queries": "SELECT count(*) AS n FROM adaptation_queries WHERE split = 'validation'",
    "test queries": "SELECT count(*) AS n FROM adaptation_queries WHERE split = 'test'",
    "texts searched": "SELECT count(*) AS n FROM adaptation_texts",
    "trials": "SELECT count(DISTINCT trial) AS n FROM adaptation_trials",
}
DISTILLED = {
    "queries to learn from": "SELECT count(*) AS n FROM tower_queries WHERE split = 'train'",
    "held-out queries": "SELECT count(*) AS n FROM tower_queries WHERE split = 'validation'",
    "unseen queries": "SELECT count(*) AS n FROM tower_queries WHERE split = 'unseen'",
    "trials": "SELECT count(*) AS n FROM distillation_trials",
}
GENERATED = {
    "documents": "SELECT count(*) AS n FROM generation_documents",
    "texts written for": "SELECT count(*) AS n FROM generation_texts",
    "queries written": "SELECT count(*) AS n FROM written_queries WHERE text IS NOT NULL",
    "queries kept": "SELECT count(*) FILTER (kept) AS n FROM generated_queries",
}
GENERATED_CAVEATS = (
    "Nobody asked these queries: all are of the train split. What a model gains by them counts on real queries alone.",
    "Where one language model writes and judges, its verdict is no second opinion.",
)
LAWS = {
    "encoders trained": """
        SELECT count(DISTINCT (coalesce(encoder_id, encoder), source, size, parameters, seed)) AS n
        FROM law_points WHERE size > 0
    """,
    "laws": "SELECT count(*) FILTER (verdict = 'law') AS n FROM law_verdicts",
    "looked for": "SELECT count(*) AS n FROM law_verdicts",
}
VERIFIERS = "SELECT DISTINCT judge_id FROM mined_verdicts ORDER BY judge_id"
POSITIVES = "SELECT count(*) AS n FROM qrels WHERE relevance > 0"


@dataclass(frozen=True)
class Notice:
    """What to know; `loud`: it must not be missed. `items` are a list below the text."""

    title: str
    text: str
    items: Sequence[str] = ()
    loud: bool = True


@dataclass(frozen=True)
class PageHeader:
    """The page's head. `badge` stands beside what is of the labels, where these are weak."""

    name: str
    kind: str
    finished: str
    sizes: Sequence[tuple[str, str]]
    judges: Sequence[str]
    more_judges: int
    warnings: Sequence[Notice]
    badge: str


def header(source: ReportSource) -> PageHeader:
    """Gather the head of a run's page."""
    judges = statistics.judges(source.tables)["judge_id"].to_pylist()
    judges += source.tables.sql(VERIFIERS)["judge_id"].to_pylist()
    weak = [judge for judge in judges if judge.startswith("embedded")]
    return PageHeader(
        source.name,
        _kind(source),
        _time(max((manifest.finished for manifest in source.manifests.values()), default="")),
        list(_sizes(source)),
        judges[:JUDGES_NAMED],
        max(0, len(judges) - JUDGES_NAMED),
        list(_warnings(source, weak)),
        WEAK if weak else NOT_JUDGED if source.mined else "",
    )


def _kind(source: ReportSource) -> str:
    if source.laws:
        return "Laws of labels"
    if source.generated:
        return "Generated queries"
    if source.adapted:
        return f"Query encoder {source.adapted}"
    return "Triplets mined from a search log" if source.mined else "Judged benchmark and triplets"


def _time(iso: str) -> str:
    return f"{iso[:10]} {iso[11:16]} UTC" if iso else ""


def _sizes(source: ReportSource) -> Iterator[tuple[str, str]]:
    counted = _table_counts(source)
    if counted:
        for label, table_name in counted.items():
            yield label, number(source.tables.sql(table_name)["n"][0].as_py())
        return
    for table, label in (MINED if source.mined else BUILT).items():
        if table in source.written_tables:
            if table == "triplets" and "qrels" in source.written_tables:
                yield "positives", number(source.tables.sql(POSITIVES)["n"][0].as_py())
            yield label, number(source.tables.rows(table))


def _table_counts(source: ReportSource) -> dict[str, str]:
    """What is told of a folder that is no run."""
    if source.laws:
        return LAWS
    if source.generated:
        return GENERATED
    if source.adapted:
        return DISTILLED if "tower_queries" in source.written_tables else ADAPTED
    return {}


def _warnings(source: ReportSource, weak: Sequence[str]) -> Iterator[Notice]:
    missing = incomplete(source)
    if missing:
        incomplete_note = "What follows is of the stages that are complete. The same command goes on from here."
        yield Notice(UNFINISHED_TITLE, incomplete_note, [f"{stage}: {state}" for stage, state in missing.items()])
    if source.adapted:
        yield from _decision_notices(source)
    if weak:
        yield Notice(NO_LLM_TITLE, NO_LLM)
    if source.mined:
        yield Notice(CLICKS_TITLE, f"{CLICKS} {weak_ranker(source.settings)}".rstrip())
    caveat_text = _caveats(source)
    if caveat_text:
        yield Notice("What to know before using it", "", [level(sentence) for sentence in caveat_text], loud=False)


def _decision_notices(source: ReportSource) -> Iterator[Notice]:
    """What is handed over, loud where it is the base."""
    for row in source.tables.read("adapter_verdict").to_pylist():
        base = row["shipped"] == "base"
        title = "The base is handed over, as it was" if base else "The adapted encoder is handed over"
        reason = level(row["reason"])
        yield Notice(title, f"{reason[:1].upper()}{reason[1:]}.", loud=base)


def _caveats(source: ReportSource) -> list[str]:
    """They speak of finished labels or triplets only."""
    if source.adapted:
        return [*ADAPTED_CAVEATS] if "adapter_verdict" in source.written_tables else []
    if source.generated:
        return [*GENERATED_CAVEATS] if "generated_queries" in source.written_tables else []
    if source.mined:
        return mined_caveats(source.tables) if "mined_triplets" in source.manifests else []
    return caveats(source.tables, source.settings) if "label" in source.manifests else []
