"""darklode verify: whether every file of a run still holds what was written."""

from collections.abc import Iterator

from darklode.flows import runs
from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.verify import FileCheck
from darklode.pipeline.base.artifacts.verify import verify as read_all
from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.mine.admission.decisions import Decisions
from darklode.pipeline.triplets.placement import MISPLACED, REBUILD_TRIPLETS, MisplacedTriplets, misplaced_triplets
from darklode.pipeline.validate.labels import require_answers

app = application()


@app.command()
def verify(run: RunArgument) -> None:
    """Read a run's tables, manifests and notes; name files that are missing, damaged or misplaced."""
    opened_run, results = Run(run), list[FileCheck]()
    if not any(map(opened_run.store.sizes, ("manifests", "review/answers"))) and not runs.read_notes(opened_run):
        raise runs.no_run(opened_run)
    for result in read_all(opened_run):
        results.append(result)
        if result.problem:
            _name(f"{opened_run.store.path(result.file)} {result.problem}")
    notes = list(_faulty_notes(opened_run))
    for sentence in notes:
        _name(sentence)
    damaged = len(notes) + sum(result.problem is not None for result in results)
    misplaced = _find_misplaced(opened_run)
    for one_file in misplaced:
        _name(
            f"{opened_run.store.path(one_file.file)}: {one_file.misplaced:,} of {one_file.rows:,} triplets {MISPLACED}"
        )
    if misplaced and not damaged:
        n = sum(one_file.misplaced for one_file in misplaced)
        raise ArtifactError(
            f"{opened_run.store.url}: {n:,} triplets {MISPLACED}, in the files named above; {REBUILD_TRIPLETS}"
        )
    if damaged:
        raise ArtifactError(
            f"{opened_run.store.url} has {damaged:,} damaged or missing file{'s' * (damaged > 1)}, named above"
        )
    size = sum(result.size for result in results) / 1e6
    _name(f"{opened_run.store.url}: {len(results):,} files, {size:,.1f} MB, hold what was written")


def _find_misplaced(run: Run) -> list[MisplacedTriplets]:
    """Files with triplets of another folder; none where a damaged file, which is named already, cannot be read."""
    try:
        return list(misplaced_triplets(run))
    except ArtifactError:
        return []


def _name(sentence: str) -> None:
    console.print(printable(sentence), soft_wrap=True)


def _faulty_notes(run: Run) -> Iterator[str]:
    """Faults of the noted inputs and settings, of reviewers' answers and of decisions about days."""
    for look in (
        lambda: runs.require_notes(run),
        lambda: runs.check_complete(run),
        lambda: require_answers(run),
        Decisions(run.store).all,
    ):
        try:
            look()
        except DarklodeError as error:
            yield from error.each
