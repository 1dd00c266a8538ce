"""darklode review: people label a sample of the pairs, in the browser or in a sheet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from darklode.pipeline.base.errors import ArtifactError, CommandLineError

if TYPE_CHECKING:
    from darklode.flows.web.review import ReviewApp
    from darklode.flows.web.server import ListenAddress

app = application()


PORT = 8765


@app.command(epilog="Example: darklode review runs/first --port 8765")
def review(
    run: RunArgument,
    *,
    port: PortOption = PORT,
    host: HostOption = LOOPBACK,
    allow_host: AllowHostOption = None,
    open_browser: OpenOption = False,
    export_sheet: Annotated[
        Path | None, typer.Option(metavar="CSV", help="No page: write a reviewer's pairs to a new sheet.")
    ] = None,
    import_sheet: Annotated[
        Path | None, typer.Option(metavar="CSV", help="No page: keep the answers of a reviewer's sheet.")
    ] = None,
    reviewer: Annotated[str | None, typer.Option(metavar="NAME", help="Whose sheet it is.")] = None,
    assignments: SetOption = None,
) -> None:
    """Let people label a sample of the pairs, on a local web page or in a sheet."""
    from darklode.flows.web.server import ListenAddress

    if (export_sheet or import_sheet) and (reviewer is None or (export_sheet and import_sheet)):
        raise CommandLineError("a sheet is exported, or imported, for one reviewer: add --reviewer NAME")
    address = ListenAddress(host, port, tuple(allow_host or ()))
    opened = Run(run)
    with _under_way(opened, assignments or []) as started:
        if export_sheet and reviewer:
            _export(started, export_sheet, reviewer)
        elif import_sheet and reviewer:
            _import(opened, started, import_sheet, reviewer)
        else:
            _serve(opened, started, address, open_browser)


@contextmanager
def _under_way(run: Run, assignments: list[str]) -> Iterator[ReviewApp]:
    """The review of a run with all answers so far."""
    from darklode.flows.jobs.validate_benchmark import draw_sample
    from darklode.flows.runs import read_benchmark, write_run
    from darklode.flows.web.review import ReviewApp
    from darklode.pipeline.base.terms import Analyzer
    from darklode.pipeline.validate.review.assignment import ReviewSession
    from darklode.pipeline.validate.review.grades import scale_of
    from darklode.pipeline.validate.review.journal import AnswerJournal
    from darklode.pipeline.validate.review.pairs import JUDGE_TABLE, TABLES_READ, open_review_pairs

    made, inputs = read_benchmark(run)
    settings = made.with_overrides(overrides(assignments))
    shown, terms = settings.review.show_judge, settings.bm25
    draw_sample(run, settings)
    if settings != made.settings:  # so that validation is of this sample, too
        write_run(run, inputs, settings)
    with open_review_pairs(run.tables(*TABLES_READ, JUDGE_TABLE), show_judge=shown) as deck:
        turns = ReviewSession(deck.rows, deck.shared, AnswerJournal(run.store))
        yield ReviewApp(deck, turns, scale_of(settings.judge), Analyzer(terms.stemmer, terms.stop_words), shown)


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """Keep a second process from taking answers for the same local run: it would hand out the same pairs.

    Raises:
        ArtifactError: there is one.
    """
    if run.store.local is None:
        yield
        return
    guard = FileLock(run.store.local / "review" / ".lock", timeout=0)
    try:
        guard.acquire()
    except Timeout as error:
        raise ArtifactError(f"{run.store.url} is being reviewed already; use that page, or end it first") from error
    try:
        yield
    finally:
        guard.release()


def _serve(run: Run, started: ReviewApp, address: ListenAddress, open_browser: bool) -> None:
    from darklode.flows.web.review import review_app
    from darklode.flows.web.server import listen, serve, show_addresses, token_of

    def ready() -> None:
        console.print("Every answer is saved before the next pair shows. Ctrl-C ends the page.\n")
        show_addresses(address.addresses(opened, token), open_browser=open_browser)

    deck = started.deck
    with _alone(run), listen(address) as opened:
        token = token_of(run.store)
        console.print(
            f"{len(deck):,} pairs of {deck.queries:,} queries, {deck.shared.sum():,} of them for every reviewer; "
            + ("the judge's verdicts are shown" if started.show_judge else "blind to the judge's verdicts")
        )
        console.print(_so_far(started), soft_wrap=True)
        serve(review_app(started, token, address.allowed_hosts), opened, ready)
    console.print(f"\n{_so_far(started)}; the same command goes on", soft_wrap=True)


def _so_far(started: ReviewApp) -> str:
    people = {name: progress.answered - progress.skipped for name, progress in started.turns.reviewers().items()}
    by = ", ".join(f"{printable(name)} {labels:,}" for name, labels in people.items())
    return f"{started.turns.n_labelled:,} of {len(started.deck):,} pairs are labelled" + (f" (by {by})" if by else "")


def _export(started: ReviewApp, file: Path, reviewer: str) -> None:
    from darklode.pipeline.validate.review.sheet import export_sheet

    name = _reviewer_name(started, reviewer)
    rows = export_sheet(file, started.deck, started.turns, name, show_judge=started.show_judge)
    console.print(f"{rows:,} pairs for {printable(name)} in {printable(str(file))}", soft_wrap=True)
    grades = ", ".join(f"{grade}: {name}".removesuffix(": ") for grade, name in sorted(started.scale.names.items()))
    console.print(f"Fill in relevance ({printable(grades)}, or skip), then: --import-sheet", soft_wrap=True)


def _import(run: Run, started: ReviewApp, file: Path, reviewer: str) -> None:
    from darklode.pipeline.validate.review.sheet import import_sheet

    with _alone(run):
        done = import_sheet(file, started.deck, started.turns, _reviewer_name(started, reviewer), started.scale)
    console.print(f"{done.new:,} answers are new, {done.n_known:,} known, {done.empty:,} rows are without one")
    console.print(_so_far(started), soft_wrap=True)
    if done.refused:
        lines, reasons = (
            [refused_row.line for refused_row in done.refused],
            [refused_row.reason for refused_row in done.refused],
        )
        show(pa.table({"line": lines, "not taken, because": reasons}), f"{len(lines):,} rows were not taken")
        raise typer.Exit(1)


def _reviewer_name(started: ReviewApp, requested_name: str) -> str:
    from darklode.pipeline.validate.review.assignment import NAME_CHARACTERS, reviewer_name

    name = reviewer_name(requested_name)
    if name is None:
        raise CommandLineError(f"--reviewer must be a name of 1 to {NAME_CHARACTERS} letters, digits or signs")
    return started.turns.canonical_name(name)
