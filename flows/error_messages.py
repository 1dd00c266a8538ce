"""Error messages on stderr: one line per problem, and a traceback only with --debug."""

import traceback

from darklode.flows.console import errors, print_error
from darklode.pipeline.base.artifacts.store import s3_failure
from darklode.pipeline.base.errors import DarklodeError

UNEXPECTED_ERROR_ADVICE = "this is a bug: run the same command with --debug to see where it occurs"


def explain(error: Exception, *, debug: bool) -> int:
    """Print an error, with its traceback if `debug`; returns the exit code."""
    if debug:
        errors.print("".join(traceback.format_exception(error)), markup=False, soft_wrap=True)
    for message in messages(error):
        print_error(message)
    return error.code if isinstance(error, DarklodeError) else 1


def messages(error: Exception) -> list[str]:
    """Messages of an error, one per problem."""
    if isinstance(error, DarklodeError):
        return error.each
    if isinstance(error, MemoryError):
        return ["out of memory; close other programs or use a machine with more memory"]
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return [f"{where}{error.strerror}"]
    if sentence := s3_failure(error):
        return [sentence]
    first = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
    return [f"{type(error).__name__}: {first}; {UNEXPECTED_ERROR_ADVICE}"]
