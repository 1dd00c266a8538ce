"""darklode judge batch: judge a run through a batch API or batch files."""

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
    """Judge a run through a hosted batch API, or through batch files."""


@app.command(epilog="Then: vllm run-batch -i calls.jsonl -o answers.jsonl --model MODEL, and `judge batch fetch`")
def export(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to create, e.g. calls.jsonl.")],
    assignments: SetOption = None,
) -> None:
    """Write the run's unjudged pairs as an OpenAI batch file."""
    from darklode.pipeline.judge.llm.batch_files import batch_files

    request = _BatchRequest(settings_of(run, assignments))
    files = dict(batch_files(request.unjudged_pairs(run), request.template, file))
    console.print(f"for {printable(request.template.judge_id)}", soft_wrap=True)
    for path, calls in files.items():
        console.print(f"{calls:,} calls in {printable(str(path))}", soft_wrap=True)
    if not files:
        console.print(request.no_unjudged_message(run))


@app.command(
    epilog="Example: darklode judge batch submit data/runs/mine --set judge.base_url=https://api.openai.com/v1"
)
def submit(run: RunArgument, assignments: SetOption = None) -> None:
    """Submit the run's unjudged pairs to the batch API at judge.base_url."""
    request = _BatchRequest(settings_of(run, assignments))
    opened_run = Run(run)
    with opened_run.lock():
        request.hosted_judge.settle(opened_run.store.url)
        submissions = [
            _print_submission(submission)
            for submission in request.hosted_judge.submit(request.unjudged_pairs(run), opened_run.store.url)
        ]
    if not submissions:
        console.print(request.no_unjudged_message(run))


@app.command()
def status(run: RunArgument, assignments: SetOption = None) -> None:
    """Show the progress of submitted batches."""
    request = _BatchRequest(settings_of(run, assignments))
    names = ("batch", "status", "calls", "answered", "failed", "run", "message")
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
                rows.append((None, "not submitted", submission.calls, None, None, submission.run, "run `submit` again"))
    finally:  # show what is known even if a batch no longer exists
        if rows:
            show(pa.table([list(column) for column in zip(*rows, strict=True)], names=names), "Batches")
    if not rows:
        console.print(request.no_batches_message(), soft_wrap=True)


@app.command()
def fetch(
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Answer files, e.g. from `vllm run-batch`; default: fetch from the batch API.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    assignments: SetOption = None,
) -> None:
    """Store answers of finished batches, or of answer files, in the ledger."""
    request = _BatchRequest(settings_of(run, assignments))
    if files:
        _read(files, request)
    else:
        _fetch(request)
    missing, nulls = sum(pairs.num_rows for pairs in request.iterate_unjudged(run)), request.nulls(run)
    unreadable = f"; {nulls:,} have an unreadable one (null)" if nulls else ""
    console.print(
        f"{missing:,} pairs of the run have no verdict by {printable(request.template.judge_id)} yet{unreadable}",
        soft_wrap=True,
    )


@app.command(epilog="Example: darklode judge batch forget batch_6789")
def forget(
    batch_id: Annotated[str, typer.Argument(metavar="ID", help="Batch id, as shown by `status` or `fetch`.")],
    assignments: SetOption = None,
) -> None:
    """Forget a lost batch: its cost counts as spent; its pairs can be resubmitted."""
    from darklode.pipeline.judge.llm.batch_jobs import BatchJournal

    journal = BatchJournal(settings_of(None, assignments).cache.root)
    submission = journal.find(batch_id)
    journal.write_off(submission)
    console.print(
        printable(f"{batch_id} is forgotten; its {submission.calls:,} calls can be submitted again"), soft_wrap=True
    )


_OUTCOME_LABELS = {
    "verdict": "verdicts",
    "null": "unreadable answers, stored as null",
    "cut_off": "answers truncated at the token limit, stored as null",
    "failed": "failed calls, to be submitted again",
    "another": "lines of another judge (did prompt, model or judge.response_format change since the export?)",
    "broken": "lines that are not JSON",
    "duplicate": "duplicate answers, ignored",
    "contradict": "of those with a different label; the first label is used",
    "renamed": "calls answered under another model name (judge.trust_model_name is set)",
}


class _BatchRequest:
    """The judge of a run's settings, with its ledger and batch journal."""

    def __init__(self, settings: "Settings") -> None:
        from darklode.pipeline.judge.ledger import Ledger
        from darklode.pipeline.judge.llm.batch_jobs import BatchJournal

        self._settings, root = settings, settings.cache.root
        self.template: RequestTemplate = template_of(settings)
        self.ledger, self._journal = Ledger(root), BatchJournal(root)

    @property
    def hosted_judge(self) -> "HostedJudge":
        """The judge behind the batch API."""
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
        """The run's pairs that have no verdict and are not in a submitted batch."""
        return self.iterate_unjudged(run, self._journal.pairs(self.template.judge_id))

    def no_unjudged_message(self, run: str) -> str:
        """Sentence that explains why no pair needs a call."""
        calls = sum(submission.calls for submission in self._journal.for_judge(self.template.judge_id))
        submitted = f" or is in a submitted batch ({calls:,} calls)" if calls else ""
        nulls = self.nulls(run)
        unreadable = f"; {nulls:,} answers are unreadable (null)" if nulls else ""
        return f"every pair of the run has a verdict{submitted}{unreadable}"

    def nulls(self, run: str) -> int:
        """Number of the run's pairs with an unreadable answer."""
        from darklode.pipeline.judge.llm.batch_files import count_unreadable

        return count_unreadable(Run(run).tables("queries", "chunks", "pool"), self.ledger, self.template.judge_id)

    def no_batches_message(self) -> str:
        """Sentence that no batch of this judge is submitted; names other judges that have batches."""
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
    has_batches = False
    for submission, state, counts in request.hosted_judge.fetch():
        has_batches = True
        if state is None:
            hint = "not submitted; `darklode judge batch submit` submits its calls"
        elif state.is_finished:
            hint = f"{state.status}: {_format_counts(counts)}{f' ({state.message})' if state.message else ''}"
        else:
            hint = f"{state.status}, {state.answered or 0:,} of {submission.calls:,} answered"
        console.print(printable(f"{submission.id or submission.token}: {hint}"), soft_wrap=True)
    if not has_batches:
        console.print(request.no_batches_message(), soft_wrap=True)


def _format_counts(counts: Counter[str]) -> str:
    return (
        ", ".join(f"{counts[kind]:,} {label}" for kind, label in _OUTCOME_LABELS.items() if counts[kind]) or "nothing"
    )
