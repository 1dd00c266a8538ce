"""What a command says of an error: one line for whatever happened, never a traceback unless it is asked for."""

import traceback

from darklode.flows.console import errors, refuse
from darklode.pipeline.base.artifacts.store import s3_failure
from darklode.pipeline.base.errors import DarklodeError

UNEXPECTED = "this should not happen: the same command with --debug shows where it did"


def explain(error: Exception, *, debug: bool) -> int:
    """Say on stderr what went wrong; returns the exit code.

    Args:
        error: what ended the command.
        debug: show the traceback, too.
    """
    if debug:
        errors.print("".join(traceback.format_exception(error)), markup=False, soft_wrap=True)
    for message in messages(error):
        refuse(message)
    return error.code if isinstance(error, DarklodeError) else 1


def messages(error: Exception) -> list[str]:
    """What there is to say of an error, each whole."""
    if isinstance(error, DarklodeError):
        return error.each
    if isinstance(error, MemoryError):
        return ["there is not enough memory; close other programs, or give the machine more"]
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return [f"{where}{error.strerror}"]
    if sentence := s3_failure(error):
        return [sentence]
    first = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
    return [f"{type(error).__name__}: {first}; {UNEXPECTED}"]
