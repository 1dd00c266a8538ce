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
    from darklode.pipeline.judge.llm.forms import RequestTemplate
    from darklode.pipeline.judge.llm.hosted import HostedJudge, Submitted
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
    from darklode.pipeline.judge.llm.batch import batch_files

    asked = _Asked(settings_of(run, assignments))
    files = dict(batch_files(asked.left(run), asked.template, file))
    console.print(f"for {printable(asked.template.judge_id)}", soft_wrap=True)
    for path, calls in files.items():
        console.print(f"{calls:,} calls in {printable(str(path))}", soft_wrap=True)
    if not files:
        console.print(asked.nothing_left(run))


@app.command(
    epilog="Example: darklode judge batch submit data/runs/mine --set judge.base_url=https://api.openai.com/v1"
)
def submit(run: RunArgument, assignments: SetOption = None) -> None:
    """Submit the run's pairs that are left to the service at judge.base_url."""
    asked = _Asked(settings_of(run, assignments))
    here = Run(run)
    with here.lock():
        asked.hosted.settle(here.store.url)
        begun = [_told(one) for one in asked.hosted.submit(asked.left(run), here.store.url)]
    if not begun:
        console.print(asked.nothing_left(run))


@app.command()
def status(run: RunArgument, assignments: SetOption = None) -> None:
    """Show how far the service is with what was submitted."""
    asked = _Asked(settings_of(run, assignments))
    names = ("batch", "status", "calls", "answered", "failed", "run", "said")
    rows = list[tuple[object, ...]]()
    try:
        for one, state in asked.hosted.look():
            if state:
                rows.append((one.id, state.status, one.calls, state.answered, state.failed, one.run, state.said))
            else:
                rows.append((None, "not begun", one.calls, None, None, one.run, "`submit` again"))
    finally:  # what is known is shown where a batch is gone, too
        if rows:
            show(pa.table([list(column) for column in zip(*rows, strict=True)], names=names), "Batches")
    if not rows:
        console.print(asked.nothing_under_way(), soft_wrap=True)


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
    asked = _Asked(settings_of(run, assignments))
    if files:
        _read(files, asked)
    else:
        _fetch(asked)
    missing, nulls = sum(pairs.num_rows for pairs in asked.unjudged(run)), asked.nulls(run)
    unreadable = f", and {nulls:,} an unreadable one (null)" if nulls else ""
    console.print(
        f"{missing:,} pairs of the run have no verdict of {printable(asked.template.judge_id)} yet{unreadable}",
        soft_wrap=True,
    )


@app.command(epilog="Example: darklode judge batch forget batch_6789")
def forget(
    batch_id: Annotated[str, typer.Argument(metavar="ID", help="The batch, as `status` or `fetch` names it.")],
    assignments: SetOption = None,
) -> None:
    """Forget a batch that is gone: it counts as paid, and can be asked again."""
    from darklode.pipeline.judge.llm.hosted import Journal

    journal = Journal(settings_of(None, assignments).cache.root)
    found = journal.named(batch_id)
    journal.write_off(found)
    console.print(printable(f"{batch_id} is forgotten; its {found.calls:,} calls can be asked again"), soft_wrap=True)


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


class _Asked:
    """A judge of a run's settings, with what is known of its pairs."""

    def __init__(self, settings: "Settings") -> None:
        from darklode.pipeline.judge.ledger import Ledger
        from darklode.pipeline.judge.llm.hosted import Journal

        self._settings, root = settings, settings.cache.root
        self.template: RequestTemplate = template_of(settings)
        self.ledger, self._journal = Ledger(root), Journal(root)

    @property
    def hosted(self) -> "HostedJudge":
        """The judge at the service."""
        from darklode.pipeline.base.remote.budget import Budget, Counters, SpendingBook
        from darklode.pipeline.base.remote.hosted import BatchService
        from darklode.pipeline.judge.llm.hosted import HostedJudge
        from darklode.pipeline.judge.llm.judge import endpoint_of

        endpoint = endpoint_of(language_model(self._settings.judge))
        budget = Budget(endpoint, Counters(), SpendingBook(self._settings.cache.root, endpoint.account))
        return HostedJudge(self.template, self.ledger, self._journal, BatchService(endpoint), budget)

    def unjudged(self, run: str, under_way: "KeyIndex | None" = None) -> Iterator[pa.Table]:
        """The run's pairs without a verdict."""
        from darklode.pipeline.judge.llm.batch import unjudged

        tables, template = Run(run).tables("queries", "chunks", "pool"), self.template
        return unjudged(tables, self.ledger, template.judge_id, template.earlier, under_way)

    def left(self, run: str) -> Iterator[pa.Table]:
        """The run's pairs that have no verdict and are not under way."""
        return self.unjudged(run, self._journal.pairs(self.template.judge_id))

    def nothing_left(self, run: str) -> str:
        """Why there is nothing to ask."""
        calls = sum(one.calls for one in self._journal.of(self.template.judge_id))
        under_way = f" or is under way ({calls:,} calls)" if calls else ""
        nulls = self.nulls(run)
        unreadable = f"; {nulls:,} answers are unreadable (null)" if nulls else ""
        return f"every pair of the run was answered{under_way}{unreadable}"

    def nulls(self, run: str) -> int:
        """The run's pairs whose answer could not be read."""
        from darklode.pipeline.judge.llm.batch import null_pairs

        return null_pairs(Run(run).tables("queries", "chunks", "pool"), self.ledger, self.template.judge_id)

    def nothing_under_way(self) -> str:
        """That there is nothing to wait for, and for whom there is."""
        others = sorted({printable(one.judge_id) for one in self._journal.all()} - {self.template.judge_id})
        hint = f"; under way are calls of {', '.join(others)}: use the settings that they were submitted with"
        return f"nothing of {printable(self.template.judge_id)} is under way there{hint if others else ''}"


def _told(one: "Submitted") -> "Submitted":
    console.print(
        f"{one.calls:,} calls submitted to {printable(one.where)} as {printable(str(one.id))}", soft_wrap=True
    )
    return one


def _read(files: list[Path], asked: _Asked) -> None:
    from darklode.pipeline.judge.llm.batch import read_batch

    for path in files:
        with path.open("rb") as lines:
            counts = read_batch(lines, asked.template, asked.ledger)
        console.print(printable(f"{path}: {_counted(counts)}"), soft_wrap=True)


def _fetch(asked: _Asked) -> None:
    any_ = False
    for one, state, counts in asked.hosted.fetch():
        any_ = True
        if state is None:
            said = "not begun; `darklode judge batch submit` submits its calls"
        elif state.over:
            said = f"{state.status}: {_counted(counts)}{f' ({state.said})' if state.said else ''}"
        else:
            said = f"{state.status}, {state.answered or 0:,} of {one.calls:,} answered"
        console.print(printable(f"{one.id or one.token}: {said}"), soft_wrap=True)
    if not any_:
        console.print(asked.nothing_under_way(), soft_wrap=True)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[kind]:,} {what}" for kind, what in _LINES.items() if counts[kind]) or "nothing"
