"""darklode judge batch: a run's calls as files, at a hosted batch service, and back into the ledger."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from darklode.flows.commands.judge_options import language_model, settings_of, template_of
from darklode.flows.commands.options import RunArgument, SetOption, application
from darklode.flows.console import console, printable, show
from darklode.pipeline.base.artifacts import Run

if TYPE_CHECKING:
    from darklode.pipeline.base.memory.keys import KeyIndex
    from darklode.pipeline.judge.llm.batch_jobs import HostedJudge, Submitted
    from darklode.pipeline.judge.llm.response_formats import RequestTemplate
    from darklode.schemas.settings import Settings

app = application(no_args_is_help=True)


@app.callback()
def batch() -> None:
    """A run's calls at a hosted batch service, or as files."""


@app.command(epilog="Then: vllm run-batch -i calls.jsonl -o answers.jsonl --model MODEL, and `judge batch fetch`")
def export(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, such as calls.jsonl.")],
    assignments: SetOption = None,
) -> None:
    """Write the run's pairs that are left to be asked as an OpenAI batch file."""
    from darklode.pipeline.judge.llm.batch_files import batch_files

    request = _BatchRequest(settings_of(run, assignments))
    files = dict(batch_files(request.unjudged_pairs(run), request.template, file))
    console.print(f"for {printable(request.template.judge_id)}", soft_wrap=True)
    for path, calls in files.items():
        console.print(f"{calls:,} calls in {printable(str(path))}", soft_wrap=True)
    if not files:
        console.print(request.nothing_left(run))


@app.command(
    epilog="Example: darklode judge batch submit data/runs/mine --set judge.base_url=https://api.openai.com/v1"
)
def submit(run: RunArgument, assignments: SetOption = None) -> None:
    """Submit the run's pairs that are left to the service at judge.base_url."""
    request = _BatchRequest(settings_of(run, assignments))
    here = Run(run)
    with here.lock():
        request.hosted_judge.settle(here.store.url)
        begun = [
            _print_submission(submission)
            for submission in request.hosted_judge.submit(request.unjudged_pairs(run), here.store.url)
        ]
    if not begun:
        console.print(request.nothing_left(run))


@app.command()
def status(run: RunArgument, assignments: SetOption = None) -> None:
    """Show how far the service is with what was submitted."""
    request = _BatchRequest(settings_of(run, assignments))
    names = ("batch", "status", "calls", "answered", "failed", "run", "said")
    rows = list[tuple[object, ...]]()
    try:
        for submission, state in request.hosted_judge.look():
            if state:
                rows.append(
                    (
                        submission.id,
                        state.status,
                        submission.calls,
                        state.answered,
                        state.failed,
                        submission.run,
                        state.message,
                    )
                )
            else:
                rows.append((None, "not begun", submission.calls, None, None, submission.run, "`submit` again"))
    finally:  # what is known is shown where a batch is gone, too
        if rows:
            show(pa.table([list(column) for column in zip(*rows, strict=True)], names=names), "Batches")
    if not rows:
        console.print(request.nothing_under_way(), soft_wrap=True)


@app.command()
def fetch(
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE…]", help="Files of answers, such as `vllm run-batch` writes.", exists=True, dir_okay=False
        ),
    ] = None,
    assignments: SetOption = None,
) -> None:
    """Keep the answers of batches that are over, or of files, in the ledger."""
    request = _BatchRequest(settings_of(run, assignments))
    if files:
        _read(files, request)
    else:
        _fetch(request)
    missing, nulls = sum(pairs.num_rows for pairs in request.iterate_unjudged(run)), request.nulls(run)
    unreadable = f", and {nulls:,} an unreadable one (null)" if nulls else ""
    console.print(
        f"{missing:,} pairs of the run have no verdict of {printable(request.template.judge_id)} yet{unreadable}",
        soft_wrap=True,
    )


@app.command(epilog="Example: darklode judge batch forget batch_6789")
def forget(
    batch_id: Annotated[str, typer.Argument(metavar="ID", help="The batch, as `status` or `fetch` names it.")],
    assignments: SetOption = None,
) -> None:
    """Forget a batch that is gone: it counts as paid, and can be asked again."""
    from darklode.pipeline.judge.llm.batch_jobs import BatchJournal

    journal = BatchJournal(settings_of(None, assignments).cache.root)
    submission = journal.find(batch_id)
    journal.write_off(submission)
    console.print(
        printable(f"{batch_id} is forgotten; its {submission.calls:,} calls can be asked again"), soft_wrap=True
    )


_LINES = {
    "verdict": "verdicts",
    "null": "unreadable answers, kept as null",
    "cut_off": "answers cut off at the token limit, kept as null",
    "failed": "failed calls, to be asked again",
    "another": "lines of another judge (were prompt, model or judge.mode changed since the export?)",
    "broken": "lines that are no JSON",
    "duplicate": "more answers to the same calls, left out",
    "contradict": "of those with another label than the first, which stands",
    "renamed": "calls answered in another model's name (judge.trust_name is set)",
}


class _BatchRequest:
    """A judge of a run's settings, with what is known of its pairs."""

    def __init__(self, settings: "Settings") -> None:
        from darklode.pipeline.judge.ledger import Ledger
        from darklode.pipeline.judge.llm.batch_jobs import BatchJournal

        self._settings, root = settings, settings.cache.root
        self.template: RequestTemplate = template_of(settings)
        self.ledger, self._journal = Ledger(root), BatchJournal(root)

    @property
    def hosted_judge(self) -> "HostedJudge":
        """The judge at the service."""
        from darklode.pipeline.base.remote.batch_service import BatchService
        from darklode.pipeline.base.remote.budget import Budget, Counters, SpendingLedger
        from darklode.pipeline.judge.llm.batch_jobs import HostedJudge
        from darklode.pipeline.judge.llm.judge import endpoint_of

        endpoint = endpoint_of(language_model(self._settings.judge))
        budget = Budget(endpoint, Counters(), SpendingLedger(self._settings.cache.root, endpoint.account))
        return HostedJudge(self.template, self.ledger, self._journal, BatchService(endpoint), budget)

    def iterate_unjudged(self, run: str, under_way: "KeyIndex | None" = None) -> Iterator[pa.Table]:
        """The run's pairs without a verdict."""
        from darklode.pipeline.judge.llm.batch_files import iterate_unjudged

        tables, template = Run(run).tables("queries", "chunks", "pool"), self.template
        return iterate_unjudged(tables, self.ledger, template.judge_id, template.previous_version, under_way)

    def unjudged_pairs(self, run: str) -> Iterator[pa.Table]:
        """The run's pairs that have no verdict and are not under way."""
        return self.iterate_unjudged(run, self._journal.pairs(self.template.judge_id))

    def nothing_left(self, run: str) -> str:
        """Why there is nothing to ask."""
        calls = sum(submission.calls for submission in self._journal.for_judge(self.template.judge_id))
        under_way = f" or is under way ({calls:,} calls)" if calls else ""
        nulls = self.nulls(run)
        unreadable = f"; {nulls:,} answers are unreadable (null)" if nulls else ""
        return f"every pair of the run was answered{under_way}{unreadable}"

    def nulls(self, run: str) -> int:
        """The run's pairs whose answer could not be read."""
        from darklode.pipeline.judge.llm.batch_files import null_pairs

        return null_pairs(Run(run).tables("queries", "chunks", "pool"), self.ledger, self.template.judge_id)

    def nothing_under_way(self) -> str:
        """That there is nothing to wait for, and for whom there is."""
        other_judges = sorted(
            {printable(submission.judge_id) for submission in self._journal.all()} - {self.template.judge_id}
        )
        hint = f"; under way are calls of {', '.join(other_judges)}: use the settings that they were submitted with"
        return f"nothing of {printable(self.template.judge_id)} is under way there{hint if other_judges else ''}"


def _print_submission(submission: "Submitted") -> "Submitted":
    console.print(
        f"{submission.calls:,} calls submitted to {printable(submission.where)} as {printable(str(submission.id))}",
        soft_wrap=True,
    )
    return submission


def _read(files: list[Path], request: _BatchRequest) -> None:
    from darklode.pipeline.judge.llm.batch_files import read_batch

    for path in files:
        with path.open("rb") as lines:
            counts = read_batch(lines, request.template, request.ledger)
        console.print(printable(f"{path}: {_format_counts(counts)}"), soft_wrap=True)


def _fetch(request: _BatchRequest) -> None:
    any_ = False
    for submission, state, counts in request.hosted_judge.fetch():
        any_ = True
        if state is None:
            hint = "not begun; `darklode judge batch submit` submits its calls"
        elif state.is_finished:
            hint = f"{state.status}: {_format_counts(counts)}{f' ({state.message})' if state.message else ''}"
        else:
            hint = f"{state.status}, {state.answered or 0:,} of {submission.calls:,} answered"
        console.print(printable(f"{submission.id or submission.token}: {hint}"), soft_wrap=True)
    if not any_:
        console.print(request.nothing_under_way(), soft_wrap=True)


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[kind]:,} {label}" for kind, label in _LINES.items() if counts[kind]) or "nothing"
