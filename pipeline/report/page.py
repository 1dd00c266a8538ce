"""The report as one HTML page that needs nothing but itself: the warnings first, then the sections in data order.

The page is well-formed XML too, holds no script, and its policy lets a browser load and run nothing: even a text from
outside that were not escaped could do no harm.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import caveats, mined_caveats, weak_ranker
from darklode.pipeline.report.figure import FigureSection, FilledFigure, filled
from darklode.pipeline.report.numbers import clean, first, level, number
from darklode.pipeline.report.passages import EXCERPT
from darklode.pipeline.report.sections import (
    audit,
    cost,
    evaluation,
    judging,
    mining,
    overview,
    people,
    pool,
    positives,
    queries,
    triplets,
    validation,
)
from darklode.pipeline.report.source import Source, incomplete

SECTIONS = (
    overview.SECTION,
    queries.SECTION,
    pool.SECTION,
    judging.SECTION,
    positives.SECTION,
    people.SECTION,
    validation.SECTION,
    audit.SECTION,
    evaluation.SECTION,
    mining.SECTION,
    triplets.SECTION,
    cost.SECTION,
)


def filled_sections(source: Source) -> Iterator[tuple[FigureSection, list[FilledFigure]]]:
    """The sections that have a figure for this run, with their figures."""
    for section in SECTIONS:
        found = list(filled(section.figures, source))
        if found:
            yield section, found


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


def header(source: Source) -> PageHeader:
    """Gather the head of a run's page."""
    judges = statistics.judges(source.tables)["judge_id"].to_pylist()
    judges += source.tables.sql(VERIFIERS)["judge_id"].to_pylist()
    weak = [judge for judge in judges if judge.startswith("embedded")]
    return PageHeader(
        source.name,
        "Triplets mined from a search log" if source.mined else "Judged benchmark and triplets",
        _time(max((manifest.finished for manifest in source.manifests.values()), default="")),
        list(_sizes(source)),
        judges[:JUDGES_NAMED],
        max(0, len(judges) - JUDGES_NAMED),
        list(_warnings(source, weak)),
        WEAK if weak else NOT_JUDGED if source.mined else "",
    )


def _time(iso: str) -> str:
    return f"{iso[:10]} {iso[11:16]} UTC" if iso else ""


def _sizes(source: Source) -> Iterator[tuple[str, str]]:
    for table, what in (MINED if source.mined else BUILT).items():
        if table in source.written:
            if table == "triplets" and "qrels" in source.written:
                yield "positives", number(source.tables.sql(POSITIVES)["n"][0].as_py())
            yield what, number(source.tables.rows(table))


def _warnings(source: Source, weak: Sequence[str]) -> Iterator[Notice]:
    missing = incomplete(source)
    if missing:
        told = "What follows is of the stages that are complete. The same command goes on from here."
        yield Notice(UNFINISHED_TITLE, told, [f"{stage}: {state}" for stage, state in missing.items()])
    if weak:
        yield Notice(NO_LLM_TITLE, NO_LLM)
    if source.mined:
        yield Notice(CLICKS_TITLE, f"{CLICKS} {weak_ranker(source.settings)}".rstrip())
    said = _caveats(source)
    if said:
        yield Notice("What to know before using it", "", [level(sentence) for sentence in said], loud=False)


def _caveats(source: Source) -> list[str]:
    """They speak of finished labels or triplets only."""
    if source.mined:
        return mined_caveats(source.tables) if "mined_triplets" in source.manifests else []
    return caveats(source.tables, source.settings) if "label" in source.manifests else []


FILE = "report.html"
TEMPLATES = files("darklode.pipeline.report").joinpath("templates")
STYLES = ("style.css", "texts.css")


def page(source: Source, sections: Sequence[tuple[FigureSection, Sequence[FilledFigure]]] | None = None) -> bytes:
    """The run's report as UTF-8; the same tables, manifests and settings give the same bytes.

    Args:
        source: the run.
        sections: its figures, where they are at hand.
    """
    style = "".join(TEMPLATES.joinpath(file).read_text("utf-8") for file in STYLES)
    shown = list(filled_sections(source)) if sections is None else sections
    text = (
        _environment()
        .get_template("page.html")
        .render(head=header(source), sections=shown, style=style, style_hash=policy_hash(style), beginning=EXCERPT)
    )
    return text.encode()


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("darklode.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_plain,
    )
    environment.globals["is_number"] = _is_number
    environment.filters |= {"number": number, "first": first}
    return environment


def _plain(value: object) -> object:
    """What the page prints: texts without what no page can hold."""
    return clean(value) if type(value) is str else value


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def policy_hash(text: str) -> str:
    """Of a style sheet or a script inside a page, as a Content-Security-Policy names it: SHA-256 in Base64."""
    return b64encode(sha256(text.encode()).digest()).decode()
