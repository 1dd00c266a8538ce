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
├── NoLift                an adapted encoder that is not shown to be better than its base
├── DoesNotFit            an adapted encoder that is not for the index, or not for the tenant
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
    """Base of all errors that a user can mend; the command line prints it without a traceback and ends with `code`.

    Args:
        messages: one, or several that were found at once, each whole.
    """

    code = 1

    def __init__(self, *messages: str) -> None:
        super().__init__("\n".join(messages))
        self.each = list(messages)


class SettingsError(DarklodeError):
    """A setting that is unknown or out of bounds."""

    code = 2


class CommandLineError(SettingsError):
    """An option that is wrong, or does not go with another one."""


class InputError(DarklodeError):
    """An input that cannot be read at all."""


class DamagedFile(InputError):
    """A file that cannot be decoded; of a folder of documents it alone is left out."""


class MissingColumns(InputError):
    """A source lacks columns that it must have, by their names.

    Args:
        messages: as for all errors.
        present: the source's columns.
        guesses: the likeliest column of each role that is missing, None where none speaks for itself.
    """

    def __init__(self, *messages: str, present: Sequence[str] = (), guesses: Mapping[str, str | None]) -> None:
        super().__init__(*messages)
        self.present = present
        self.guesses = guesses


class TooManyRejects(InputError):
    """More rows were unreadable than `ingest.max_reject_share` allows."""


class EverythingDropped(InputError):
    """A stage dropped every row. What it wrote until then, its rejects above all, can be read; it will run again."""


class ArtifactError(DarklodeError):
    """A run folder that is locked, incomplete, damaged or not a run."""


class NotWritable(ArtifactError, OSError):
    """A file that cannot be written until somebody makes room, or gives leave."""


class NotPublishable(DarklodeError):
    """A benchmark that the release gate holds back: a figure of `validation` was not reached."""

    code = 3


class NoLift(DarklodeError):
    """An adapted encoder that is not shown to be better than its base; the base is handed over in its place."""

    code = 3


class DoesNotFit(DarklodeError):
    """An adapted encoder that is not for the index, or not for the tenant; the message names what differs."""

    code = 3


class HeldBack(DarklodeError):
    """Days of a search log that are implausible and wait for a decision; the run is complete without them.

    Args:
        messages: which, and why; what else was held back that night.
        days: what `--accept-day` and `--discard-day` call them.
    """

    code = 4

    def __init__(self, *messages: str, days: Sequence[str] = ()) -> None:
        super().__init__(*messages)
        self.days = list(days)


class LimitReached(DarklodeError):
    """A limit of money or tokens that the next call could exceed."""


class MissingPart(DarklodeError):
    """Something that a setting asks for is not installed, not reachable or not configured."""


class NotReady(DarklodeError):
    """Several things that stand in the way, found before anything was begun.

    Args:
        errors: what they are; their code is its own, where all have one.
    """

    def __init__(self, errors: Sequence[DarklodeError]) -> None:
        super().__init__(*(message for error in errors for message in error.each))
        codes = {error.code for error in errors}
        self.code = codes.pop() if len(codes) == 1 else DarklodeError.code


class ExportError(DarklodeError):
    """The run does not hold what the export format needs."""


class UnknownFormat(ExportError):
    """There is no export format of the name."""

    code = 2
