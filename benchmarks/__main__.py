"""Run the benchmarks one after another, each in its own process, and write docs/benchmarks.md.

python -m benchmarks [--quick] [NAME ...]
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks import report

LONG = {"mutation", "stage_one"}
"""Only run when named: takes hours."""

ALL_THREADS = {"dense"}
"""Compared with libraries that use all cores; all others run on one thread."""


def main() -> None:
    """Run; exit code 1 if a benchmark failed."""
    parser = report.options(__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="benchmarks to run; default: all but mutation and stage_one"
    )
    arguments = parser.parse_args()
    names = arguments.names or [name for name in report.ALL if name not in LONG]
    if unknown := set(names) - set(report.ALL):
        parser.error(f"unknown benchmark: {', '.join(sorted(unknown))}; choose from {', '.join(report.ALL)}")
    failures = [name for name in names if not has_passed(name, quick=arguments.quick)]
    if not arguments.quick:
        report.main()
    if failures:
        sys.exit(f"Failed: {', '.join(failures)}")


def has_passed(name: str, *, quick: bool) -> bool:
    """Run one benchmark; one that is skipped because something is missing counts as passed."""
    print(f"== {name}", flush=True)
    environment = dict(os.environ) if name in ALL_THREADS else os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if quick else [])]
    return subprocess.run(command, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    main()
