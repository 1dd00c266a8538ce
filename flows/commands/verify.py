"""darklode verify: check the integrity of a run's files."""

from collections.abc import Iterator

from darklode.flows import runs
from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.verify import FileCheck
from darklode.pipeline.base.artifacts.verify import verify as read_all
from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.mine.admission.decisions import Decisions
from darklode.pipeline.triplets.placement import (
    MISPLACED,
    REBUILD_TRIPLETS,
    MisplacedTriplets,
    misplaced_triplets,
)
from darklode.pipeline.validate.labels import require_answers

app = application()


@app.command()
def verify(run: RunArgument) -> None:
    """Check all files of a run against their checksums; report missing, damaged or misplaced ones."""
    opened_run, results = Run(run), list[FileCheck]()
    if not any(map(opened_run.store.sizes, ("manifests", "review/answers"))) and runs.folder_kind(opened_run) is None:
        raise runs.no_run(opened_run)
    for result in read_all(opened_run):
        results.append(result)
        if result.problem:
            _print(f"{opened_run.store.path(result.file)} {result.problem}")
    note_errors = list(_note_errors(opened_run))
    for sentence in note_errors:
        _print(sentence)
    n_damaged = len(note_errors) + sum(result.problem is not None for result in results)
    misplaced = _find_misplaced(opened_run)
    for file in misplaced:
        _print(f"{opened_run.store.path(file.file)}: {file.misplaced:,} of {file.rows:,} triplets {MISPLACED}")
    if misplaced and not n_damaged:
        n_misplaced = sum(file.misplaced for file in misplaced)
        raise ArtifactError(
            f"{opened_run.store.url}: {n_misplaced:,} triplets {MISPLACED}, in the files listed; {REBUILD_TRIPLETS}"
        )
    if n_damaged:
        raise ArtifactError(
            f"{opened_run.store.url} has {n_damaged:,} damaged or missing file{'s' * (n_damaged > 1)}, listed above"
        )
    size = sum(result.size for result in results) / 1e6
    _print(f"{opened_run.store.url}: {len(results):,} files, {size:,.1f} MB, all intact")


def _find_misplaced(run: Run) -> list[MisplacedTriplets]:
    """Files with triplets of another folder; none if a damaged file, already reported, cannot be read."""
    try:
        return list(misplaced_triplets(run))
    except ArtifactError:
        return []


def _print(sentence: str) -> None:
    console.print(printable(sentence), soft_wrap=True)


def _note_errors(run: Run) -> Iterator[str]:
    """Errors in the recorded inputs and settings, the reviewers' answers and the decisions about days."""
    for check in (
        lambda: runs.check_record(run),
        lambda: require_answers(run),
        Decisions(run.store).all,
    ):
        try:
            check()
        except DarklodeError as error:
            yield from error.each
