"""Everything Darklode raises on purpose.

DarklodeError
├── SettingsError        an unknown key, a value out of bounds
├── InputError           a path, file or column that cannot be read at all
│   └── TooManyRejects   so many bad rows that the mapping must be wrong
├── ArtifactError        a run folder that is locked, incomplete or not a run
├── NotPublishable       a benchmark whose judge agrees too little with people
├── HeldBack             a night whose numbers differ too much from those before it
├── MissingPart          a package, server or key that a setting asks for
└── ExportError          a run that the format cannot hold

Each message says what was wrong, where, and what to do next. A bad row is no error: it goes to `rejects`.
"""


class DarklodeError(Exception):
    """Base of all errors that a user can mend; the command line prints it without a traceback and ends with `code`."""

    code = 1


class SettingsError(DarklodeError):
    """A setting that is unknown or out of bounds."""


class InputError(DarklodeError):
    """An input that cannot be read at all."""


class TooManyRejects(InputError):
    """More rows were unreadable than `ingest.max_reject_share` allows."""


class ArtifactError(DarklodeError):
    """A run folder that is locked, incomplete, damaged or not a run."""


class NotPublishable(DarklodeError):
    """A benchmark that the release gate holds back: a figure of `validation` was not reached."""

    code = 3


class HeldBack(DarklodeError):
    """A night of mining that is not published: its numbers differ more than `mining.max_drift` allows."""


class MissingPart(DarklodeError):
    """Something that a setting asks for is not installed, not reachable or not configured."""


class ExportError(DarklodeError):
    """The run does not hold what the export format needs."""
