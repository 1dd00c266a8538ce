"""Temporary files of atomic writes: who writes each, so that the next holder of a run's lock knows which to delete.

    .NAME.RANDOM.MACHINE.PID.LEASE.tmp

MACHINE distinguishes hosts, boots and containers, so a process number is only looked up where it was given. LEASE is
drawn anew each time somebody takes the run's lock; it is `unlocked` for a file that is written without the lock.
"""

import errno
import hashlib
import os
import re
import secrets
import socket
import time
from functools import cache
from pathlib import Path

UNLOCKED = "unlocked"
ABANDONED_SECONDS = 86_400.0
"""A write takes seconds; after a day a temporary file of an unknown process is left over."""

TEMPORARY = r"(\.[0-9a-f]{8})?(\.[0-9a-f]{8})?\.\d+(\.(?:[0-9a-f]{8}|unlocked))?\.tmp"
"""What follows the file's own name; versions before 0.1.0 wrote no machine and no lease."""

_ANY = re.compile(rf"\..+?{TEMPORARY}")
_OWNED = re.compile(r"\..+\.[0-9a-f]{8}\.([0-9a-f]{8})\.(\d+)\.([0-9a-f]{8}|unlocked)\.tmp")


def new_lease() -> str:
    """A name for one holding of a run's lock."""
    return secrets.token_hex(4)


def temporary_path(target: Path, lease: str) -> Path:
    """A temporary file of this process beside the file that it becomes."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{machine_id()}.{os.getpid()}.{lease}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a file's name is that of a temporary file, of this version or of an earlier one."""
    return _ANY.fullmatch(name) is not None


def is_left_over(name: str, modified: float, lease: str) -> bool:
    """Whether a temporary file's writer is gone, as the holder of the run's lock sees it.

    Args:
        name: without its folder.
        modified: seconds since the epoch.
        lease: of the lock that is held now.
    """
    owner = _OWNED.fullmatch(name)
    if owner:
        machine, process, of_lease = owner.groups()
        if of_lease != UNLOCKED:
            return of_lease != lease
        if machine == machine_id():
            return not _is_running(int(process))
    return is_temporary(name) and time.time() - modified > ABANDONED_SECONDS


@cache
def machine_id() -> str:
    """Identifies the host, its boot and the container: within one, a process number means one process."""
    facts = [socket.gethostname()]
    for path, read in (("/proc/sys/kernel/random/boot_id", Path.read_text), ("/proc/self/ns/pid", Path.readlink)):
        try:
            facts.append(str(read(Path(path))))
        except OSError:  # not Linux
            facts.append("")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
