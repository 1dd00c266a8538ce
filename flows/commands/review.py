"""darklode review: let people label a sample of the pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer
from filelock import FileLock, Timeout

from darklode.flows.commands.options import (
    LOOPBACK,
    AllowHostOption,
    HostOption,
    OpenOption,
    PortOption,
    RunArgument,
    SetOption,
    application,
)
from darklode.flows.config import overrides
from darklode.flows.console import console, printable, show
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.s3_lease import hold_s3_lease
from darklode.pipeline.base.errors import ArtifactError, CommandLineError

if TYPE_CHECKING:
    from darklode.flows.web.review import ReviewApp
    from darklode.flows.web.server import ListenAddress

app = application()


PORT = 8765

PurposeOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="PURPOSE",
        help="What the labels are for: validate (the judge; default), evaluate (systems), calibrate (probabilities and "
        "thresholds) or teach (uncertain and disputed pairs). Decides which pairs are sampled more often.",
    ),
]
NewSampleOption = Annotated[
    bool,
    typer.Option(
        "--new-sample",
        help="With --for: draw the sample of another purpose although pairs are labelled; all answers are kept.",
    ),
]
UntilOption = Annotated[
    float,
    typer.Option(
        metavar="HALF_WIDTH",
        min=0.001,
        max=0.5,
        help="Half-width of the 95 % interval at which the page says to stop (validate: precision of the judge; "
        "evaluate: nDCG@10).",
    ),
]


@app.command(epilog="Example: darklode review runs/first --port 8765")
def review(
    run: RunArgument,
    *,
    port: PortOption = PORT,
    host: HostOption = LOOPBACK,
    allow_host: AllowHostOption = None,
    open_browser: OpenOption = False,
    export_sheet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a reviewer's pairs to a new CSV sheet instead of serving a page."),
    ] = None,
    import_sheet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Import the answers of a reviewer's sheet instead of serving a page."),
    ] = None,
    reviewer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Reviewer of the sheet; required with a sheet.")
    ] = None,
    max_grade: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            max=9,
            help="Give grades from 0 (not relevant) to this one. Default: the judge's grades, or relevant and not "
            "relevant if it gives none.",
        ),
    ] = None,
    purpose: PurposeOption = None,
    new_sample: NewSampleOption = False,
    until: UntilOption = 0.05,
    assignments: SetOption = None,
) -> None:
    """Let people label a sample of the pairs, in the browser or in a CSV sheet."""
    from darklode.flows.web.server import ListenAddress

    if (export_sheet or import_sheet) and (reviewer is None or (export_sheet and import_sheet)):
        raise CommandLineError("use one of --export-sheet and --import-sheet, together with --reviewer NAME")
    address = ListenAddress(host, port, tuple(allow_host or ()))
    opened_run = Run(run)
    set_purpose(opened_run, purpose, new_sample=new_sample)
    with open_review(opened_run, overrides(assignments or []), max_grade, until) as review_app:
        if export_sheet and reviewer:
            _export(review_app, export_sheet, reviewer)
        elif import_sheet and reviewer:
            _import(opened_run, review_app, import_sheet, reviewer)
        else:
            _serve(opened_run, review_app, address, open_browser)


def set_purpose(run: Run, name: str | None, *, new_sample: bool) -> None:
    """Set the purpose of a run's review; None keeps it.

    Raises:
        CommandLineError: there is no such purpose, or the pairs of another one are being labelled.
    """
    if name is None:
        if new_sample:
            raise CommandLineError("--new-sample needs --for PURPOSE: another sample is drawn for another purpose")
        return
    from darklode.pipeline.validate.purposes import PURPOSES, read_purpose, write_purpose
    from darklode.pipeline.validate.review.journal import ANSWERS_FOLDER

    purposes = {purpose: purpose for purpose in PURPOSES}
    if name not in purposes:
        raise CommandLineError(f"--for must be one of {', '.join(PURPOSES)}")
    previous = read_purpose(run.store)
    if name == previous:
        return
    if run.store.sizes(ANSWERS_FOLDER) and not new_sample:
        raise CommandLineError(
            f"pairs sampled to {previous} are labelled already; a sample to {name} has other pairs, and estimates use "
            "only labels of its own. Add --new-sample to draw it: all answers are kept, and those to its pairs count"
        )
    write_purpose(run.store, purposes[name])


@contextmanager
def open_review(
    run: Run, values: Mapping[str, Any], max_grade: int | None, until: float | None = None
) -> Iterator[ReviewApp]:
    """Draw the sample of a run and load the answers given so far."""
    from darklode.flows.jobs.validate_benchmark import draw_sample
    from darklode.flows.runs import read_benchmark, write_run
    from darklode.flows.web.review import ReviewApp
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.base.terms import Analyzer
    from darklode.pipeline.judge.grade_thresholds import fitted_grades
    from darklode.pipeline.validate.purposes import read_purpose
    from darklode.pipeline.validate.review.assignment import ReviewSession
    from darklode.pipeline.validate.review.figures import figure_of
    from darklode.pipeline.validate.review.grades import scale_of
    from darklode.pipeline.validate.review.journal import AnswerJournal
    from darklode.pipeline.validate.review.pairs import JUDGE_TABLE, TABLES_READ, open_review_pairs
    from darklode.pipeline.validate.review.stopping import DEFAULT_HALF_WIDTH, StoppingRule

    benchmark_run, inputs = read_benchmark(run)
    settings = benchmark_run.with_overrides(values)
    show_judge, terms = settings.review.show_judge, settings.bm25
    draw_sample(run, settings)
    if settings != benchmark_run.settings:  # `validate` must use the same sample
        write_run(run, inputs, settings)
    with open_review_pairs(run.tables(*TABLES_READ, JUDGE_TABLE), show_judge=show_judge) as pairs:
        session = ReviewSession(pairs.rows, pairs.shared, AnswerJournal(run.store))
        scale = scale_of(settings, max_grade, fitted_grades(all_tables(run)))
        stopping = StoppingRule(figure_of(all_tables(run), read_purpose(run.store)), until or DEFAULT_HALF_WIDTH)
        yield ReviewApp(pairs, session, scale, Analyzer(terms.stemmer, terms.stop_words), show_judge, stopping)


@contextmanager
def lock_review(run: Run) -> Iterator[None]:
    """Lock a run's review: a second process would assign the same pairs again.

    Raises:
        ArtifactError: another process holds the lock.
    """
    if run.store.local is None:
        with hold_s3_lease(run.store.path("review/.lock"), f"{run.store.url}/review", "use its page, or stop it first"):
            yield
        return
    guard = FileLock(run.store.local / "review" / ".lock", timeout=0)
    try:
        guard.acquire()
    except Timeout as error:
        raise ArtifactError(
            f"{run.store.url} is already being reviewed by another process; use its page, or stop it first"
        ) from error
    try:
        yield
    finally:
        guard.release()


def _serve(run: Run, review_app: ReviewApp, address: ListenAddress, open_browser: bool) -> None:
    from darklode.flows.web.review import review_app as create_app
    from darklode.flows.web.server import listen, serve, show_addresses, token_of

    def show_ready() -> None:
        console.print("Each answer is saved before the next pair appears. Press Ctrl-C to stop.\n")
        show_addresses(address.addresses(listening, token), open_browser=open_browser)

    pairs = review_app.pairs
    with lock_review(run), listen(address) as listening:
        token = token_of(run.store)
        console.print(
            f"{len(pairs):,} pairs of {pairs.queries:,} queries, {pairs.shared.sum():,} of them for every reviewer; "
            f"the judge's verdicts are {'shown' if review_app.show_judge else 'hidden'}"
        )
        if pairs.near_misses:
            console.print(
                f"{pairs.near_misses:,} of them are near misses: the most probable candidates of queries without a "
                "positive. The others are the random sample for `darklode validate`; both take turns.",
                soft_wrap=True,
            )
        console.print(_format_progress(review_app), soft_wrap=True)
        _show_stopping(review_app)
        serve(create_app(review_app, token, address.allowed_hosts), listening, show_ready)
    console.print()
    _show_stopping(review_app)
    console.print(f"{_format_progress(review_app)}. Run the same command again to continue.", soft_wrap=True)


def _format_progress(review_app: ReviewApp) -> str:
    session = review_app.session
    people = {name: progress.answered - progress.skipped for name, progress in session.reviewers().items()}
    names = ", ".join(f"{printable(name)} {labels:,}" for name, labels in people.items())
    counts = f"{session.n_labelled:,} of {len(review_app.pairs):,} pairs are labelled"
    return counts + (f" ({names})" if names else "")


def _show_stopping(review_app: ReviewApp) -> None:
    sentence = review_app.stopping.sentence(review_app.session.labels())
    if sentence:
        console.print(sentence, soft_wrap=True)


def _export(review_app: ReviewApp, file: Path, reviewer: str) -> None:
    from darklode.pipeline.validate.review.sheet import export_sheet

    name = _reviewer_name(review_app, reviewer)
    rows = export_sheet(file, review_app.pairs, review_app.session, name, show_judge=review_app.show_judge)
    console.print(f"Wrote {rows:,} pairs for {printable(name)} to {printable(str(file))}", soft_wrap=True)
    grades = ", ".join(f"{grade}: {name}".removesuffix(": ") for grade, name in sorted(review_app.scale.names.items()))
    console.print(
        f"Fill in the column relevance ({printable(grades)}, or skip), then use --import-sheet", soft_wrap=True
    )
    _show_stopping(review_app)


def _import(run: Run, review_app: ReviewApp, file: Path, reviewer: str) -> None:
    from darklode.pipeline.validate.review.sheet import import_sheet

    with lock_review(run):
        result = import_sheet(
            file, review_app.pairs, review_app.session, _reviewer_name(review_app, reviewer), review_app.scale
        )
    console.print(
        f"{result.new:,} new answers, {result.n_known:,} already known, {result.empty:,} rows without an answer"
    )
    console.print(_format_progress(review_app), soft_wrap=True)
    _show_stopping(review_app)
    if result.refused:
        lines, reasons = [row.line for row in result.refused], [row.reason for row in result.refused]
        show(pa.table({"line": lines, "reason": reasons}), f"{len(lines):,} rejected rows")
        raise typer.Exit(1)


def _reviewer_name(review_app: ReviewApp, requested_name: str) -> str:
    from darklode.pipeline.validate.review.assignment import NAME_CHARACTERS, reviewer_name

    name = reviewer_name(requested_name)
    if name is None:
        raise CommandLineError(f"--reviewer must be a name of 1 to {NAME_CHARACTERS} letters, digits or signs")
    return review_app.session.canonical_name(name)
