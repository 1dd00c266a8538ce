"""Temporary files of atomic writes. Names identify the writer, so that files of killed processes can be deleted.

    .NAME.RANDOM.MACHINE.PID.LEASE.tmp

MACHINE distinguishes hosts, boots and containers, so that a PID is only looked up where it is valid. LEASE is random
for each holder of the run's lock, and `unlocked` for files that are written without the lock.
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

UNLOCKED_LEASE = "unlocked"
"""Lease in the names of files that are written without the run's lock."""

ABANDONED_SECONDS = 86_400.0
"""Age after which a temporary file of an unknown process counts as left over; a write takes seconds."""

TEMPORARY_SUFFIX = r"(\.[0-9a-f]{8})?(\.[0-9a-f]{8})?\.\d+(\.(?:[0-9a-f]{8}|unlocked))?\.tmp"
"""Suffix of temporary files; versions before 0.1.0 wrote no machine and no lease."""

_ANY_TEMPORARY = re.compile(rf"\..+?{TEMPORARY_SUFFIX}")
_OWNED_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.([0-9a-f]{8})\.(\d+)\.([0-9a-f]{8}|unlocked)\.tmp")


def new_lease() -> str:
    """A random lease for a holder of a run's lock."""
    return secrets.token_hex(4)


def temporary_path(target: Path, lease: str) -> Path:
    """Path of a temporary file of this process, in the folder of the target."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{machine_id()}.{os.getpid()}.{lease}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a file is a temporary file of this or an earlier version."""
    return _ANY_TEMPORARY.fullmatch(name) is not None


def is_left_over(name: str, modified: float, lease: str) -> bool:
    """Whether a temporary file is left over from a killed process; to be called by the holder of the run's lock.

    Args:
        name: file name without folder.
        modified: modification time in seconds since the epoch.
        lease: lease of the current lock.
    """
    owner = _OWNED_TEMPORARY.fullmatch(name)
    if owner:
        machine, process, file_lease = owner.groups()
        if file_lease != UNLOCKED_LEASE:
            return file_lease != lease
        if machine == machine_id():
            return not is_running(int(process))
    return is_temporary(name) and time.time() - modified > ABANDONED_SECONDS


@cache
def machine_id() -> str:
    """Hash of host, boot and container: the scope in which a PID is valid."""
    identifiers = [socket.gethostname()]
    for path, read in (("/proc/sys/kernel/random/boot_id", Path.read_text), ("/proc/self/ns/pid", Path.readlink)):
        try:
            identifiers.append(str(read(Path(path))))
        except OSError:  # not Linux
            identifiers.append("")
    return hashlib.sha256("\n".join(identifiers).encode()).hexdigest()[:8]


def is_running(process: int) -> bool:
    """Whether a process of this machine exists; signal 0 only checks, it does not interrupt the process."""
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
