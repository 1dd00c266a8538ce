"""Everything Darklode raises on purpose.

DarklodeError
├── SettingsError         an unknown key, a value out of bounds
│   └── CommandLineError  the same of an option, and not of a file
├── InputError            a path, file or column that cannot be read at all
│   ├── DamagedFile       a file whose bytes are not what its ending or its beginning says
│   ├── MissingColumns    columns that a source must have, and no name of its own says which they are
│   ├── TooManyRejects    so many bad rows that the mapping must be wrong
│   └── EverythingDropped  a stage dropped every row; its rejects are written
├── ArtifactError         a run folder that is locked, incomplete, damaged or not a run
│   └── NotWritable       a file that cannot be written, now or when it is tried again
├── NotPublishable        a benchmark whose judge agrees too little with people
├── NotBetter             a judge's changed prompt that is not shown to agree better with people
├── NoLift                an adapted encoder or reranker that is not shown to be better than what needs no training
├── DoesNotFit            an adapted encoder or reranker that is not for the index, or not for the tenant
├── StageUnfinished       a stage that wrote part of its rows, and will run again
├── HeldBack              days of a search log that wait for somebody's decision
├── LimitReached          a limit of money or tokens that the next call could exceed
├── MissingPart           a package, server or key that a setting asks for
├── NotReady              several of these at once, found before the work begins
└── ExportError           a run that the format cannot hold
    └── UnknownFormat     a format that there is not

Each message says what was wrong, where, and what to do next. A bad row is no error: it goes to `rejects`.
"""

from collections.abc import Mapping, Sequence


class DarklodeError(Exception):
    """Base of all errors that a user can fix; the command line prints it without a traceback and exits with `code`.

    Args:
        messages: one, or several found at once, each a complete sentence.
    """

    code = 1

    def __init__(self, *messages: str) -> None:
        super().__init__("\n".join(messages))
        self.each = list(messages)


class SettingsError(DarklodeError):
    """A setting is unknown or out of bounds."""

    code = 2


class CommandLineError(SettingsError):
    """An option is wrong, or conflicts with another one."""


class InputError(DarklodeError):
    """An input cannot be read at all."""


class DamagedFile(InputError):
    """A file cannot be decoded; in a folder of documents only this file is left out."""


class MissingColumns(InputError):
    """A source lacks required columns.

    Args:
        messages: as for all errors.
        present: columns of the source.
        guesses: the likeliest column for each missing role; None if there is no clear candidate.
    """

    def __init__(self, *messages: str, present: Sequence[str] = (), guesses: Mapping[str, str | None]) -> None:
        super().__init__(*messages)
        self.present = present
        self.guesses = guesses


class TooManyRejects(InputError):
    """More rows were unreadable than `ingest.max_reject_share` allows."""


class EverythingDropped(InputError):
    """A stage dropped every row. Its rejects can be read; the stage will run again."""


class ArtifactError(DarklodeError):
    """A run folder is locked, incomplete, damaged or not a run."""


class NotWritable(ArtifactError, OSError):
    """A file cannot be written until there is space or permission."""


class NotPublishable(DarklodeError):
    """The release gate holds a benchmark back: a validation limit was not met."""

    code = 3


class NotBetter(DarklodeError):
    """A judge's changed prompt is not shown to agree better with people, so it is not written."""

    code = 3


class NoLift(DarklodeError):
    """An adapted encoder or reranker is not shown to be better than its base, so it is not released."""

    code = 3


class DoesNotFit(DarklodeError):
    """An adapted encoder or reranker does not match the index or the tenant; the message names the difference."""

    code = 3


class HeldBack(DarklodeError):
    """Days of a search log are implausible and wait for a decision; the run is complete without them.

    Args:
        messages: which days and why, and what else was held back that night.
        days: their names for `--accept-day` and `--discard-day`.
    """

    code = 4

    def __init__(self, *messages: str, days: Sequence[str] = ()) -> None:
        super().__init__(*messages)
        self.days = list(days)


class StageUnfinished(DarklodeError):
    """A stage could not finish. Its output says what is missing and can be read; the stage will run again."""


class LimitReached(DarklodeError):
    """The next call could exceed a limit of money or tokens."""


class MissingPart(DarklodeError):
    """A setting requires something that is not installed, reachable or configured."""


class NotReady(DarklodeError):
    """Several problems were found before any work began.

    Args:
        errors: the problems; if all have the same exit code, it is used.
    """

    def __init__(self, errors: Sequence[DarklodeError]) -> None:
        super().__init__(*(message for error in errors for message in error.each))
        codes = {error.code for error in errors}
        self.code = codes.pop() if len(codes) == 1 else DarklodeError.code


class ExportError(DarklodeError):
    """The run does not contain what the export format needs."""


class UnknownFormat(ExportError):
    """The export format does not exist."""

    code = 2
