"""The environment of a process that a test starts."""

import os
import sys


def with_paths(**more: str) -> dict[str, str]:
    """This process's own, with its import paths and one thread."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | more
