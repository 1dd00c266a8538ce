"""Mutation test.

Share of small faults in the packages that compute which no quick test notices. Draws places uniformly from their code
(an operator, comparison, number, boolean, loop, decorator or `break`; no type annotations) and lets cosmic-ray change
each in one random way. A mutant runs against the test file of the same name, then against the other test files of its
package that import the module, without the slow tests; each in a fork of a process that has loaded the libraries, in
a copy of the working tree. Mutants that no test could notice ("equivalent") carry a reason in
benchmarks/mutation_sample.json and are counted apart; mutants whose lines have changed since are left out. Continues
where it was stopped. Takes hours and is not part of `make bench`; `--quick` runs five mutants (5 min).

    python -m benchmarks.mutation [--quick] [--again] [--seed N] [--sample N]
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.report import ResultTable, options, publish

PACKAGES = ("judge", "train", "towers", "laws", "evaluate", "validate", "mine", "triplets")
LIBRARIES = (
    "accelerate datasets duckdb faiss hypothesis moto openai peft pyarrow.compute pyarrow.dataset pyarrow.parquet "
    "pytest scipy.optimize scipy.stats sentence_transformers sklearn.linear_model torch transformers "
    "helpers.browser helpers.flow_fixtures helpers.s3_bucket"
).split()
UNCHANGED = tuple(
    f"darklode.{name}" for name in "schemas prompts pipeline.base pipeline.ingest pipeline.retrieve".split()
)
SKIPPED_OPERATORS = ("core/Variable", "core/ExceptionReplacer")  # need arguments; fails on dotted names
SAMPLE = Path(__file__).with_name("mutation_sample.json")
QUICK = 5
UNKNOWN_EXIT = 99  # an exit code that pytest does not use

Mutant = dict[str, Any]
Position = tuple[int, int]


def mutable_places(root: Path) -> Iterator[tuple[str, Position, list[tuple[str, int]]]]:
    """File, position, and the (operator, occurrence) pairs of one family that change this place."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    operators = {name: get_operator(name)() for name in operator_names() if not name.startswith(SKIPPED_OPERATORS)}
    for path in sorted(file for package in PACKAGES for file in (root / "pipeline" / package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        annotations, nodes = list(_annotations(source)), list(ast_nodes(get_ast(source)))
        variants: dict[tuple[Position, str], list[tuple[str, int]]] = defaultdict(list)
        for name, operator in operators.items():
            spans = [span for node in nodes for span in operator.mutation_positions(node)]
            for occurrence, (start, _) in enumerate(spans):
                if not any(first <= start < last for first, last in annotations):
                    variants[start, name.split("_")[0]].append((name, occurrence))
        for (start, _), pairs in sorted(variants.items()):
            yield str(path.relative_to(root)), start, pairs


def _annotations(source: str) -> Iterator[tuple[Position, Position]]:
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            if (child := getattr(node, name, None)) is not None:
                yield (child.lineno, child.col_offset), (child.end_lineno, child.end_col_offset)


def draw_mutants(root: Path, n: int, seed: int) -> list[Mutant]:
    """The sample, in random order, so that its beginning is a sample as well."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    generator, mutants = random.Random(seed), list[Mutant]()
    places = list(mutable_places(root))
    for path, (line, _), pairs in generator.sample(places, len(places)):
        if len(mutants) == n:
            break
        name, occurrence = generator.choice(pairs)
        source = (root / path).read_text(encoding="utf-8")
        mutated = mutate_code(source, get_operator(name)(), occurrence)
        if not _compiles(mutated):  # for example: cosmic-ray takes the * between parameters for an operator
            continue
        before, after = _difference(source.splitlines(), mutated.splitlines())
        mutants.append({"path": path, "line": line, "operator": name, "before": before, "after": after})
    return mutants


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _difference(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """The lines that differ, without the common beginning and end."""
    shorter = min(len(old), len(new))
    head = next((row for row in range(shorter) if old[row] != new[row]), shorter)
    old, new = old[head:], new[head:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return old, new


def apply_mutant(source: str, mutant: Mutant) -> str | None:
    """The mutated source, at the occurrence of the original lines nearest to their line; None if they are gone."""
    lines, before = source.splitlines(), mutant["before"]
    starts = [row for row in range(len(lines)) if lines[row : row + len(before)] == before]
    if not starts:
        return None
    start = min(starts, key=lambda row: abs(row + 1 - mutant["line"]))
    return "\n".join([*lines[:start], *mutant["after"], *lines[start + len(before) :]]) + "\n"


class WorkingCopy:
    """A copy of the working tree, in which mutants are run.

    Args:
        root: the working tree.
        folder: an existing folder, for the copy.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder
        for name in subprocess.check_output(["git", "ls-files"], cwd=root, text=True).splitlines():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name, follow_symlinks=False)
        paths = [str(folder / name) for name in ("src", ".", "tests")]
        os.environ["PYTHONPATH"], sys.path[:0] = ":".join(paths), paths
        self._seconds: dict[str, float | None] = {}

    def verdict(self, mutant: Mutant) -> str:
        """Whether the test file of the same name kills it, another one, or none; "gone" if its lines have changed."""
        path = self.root / mutant["path"]
        changed = apply_mutant(path.read_text(encoding="utf-8"), mutant) if path.exists() else None
        if changed is None:
            return "gone"
        source, times = path.read_text(encoding="utf-8"), path.stat()
        own = f"tests/{Path(mutant['path']).parent}/test_{path.name}"
        for kind, names in (("same", [own]), ("other", self._importing(mutant["path"], own))):
            passing = self._passing(names)
            if not passing:
                continue
            limit = 60 + 4 * sum(self._seconds[name] or 0.0 for name in passing)
            try:
                path.write_text(changed, encoding="utf-8")
                os.utime(path, (times.st_atime, time.time() + random.randrange(10**6)))  # compiled files depend on it
                if in_fork(lambda passing=passing: self.run_tests(passing), limit):  # type: ignore[misc]
                    return f"killed by {kind}"
            finally:
                path.write_text(source, encoding="utf-8")
                os.utime(path, (times.st_atime, times.st_mtime))
        return "survived"

    def run_tests(self, names: list[str], *plugins: object) -> int:
        """pytest's exit code; called in a fork."""
        import pytest

        os.chdir(self.root)
        flags = ["-q", "-m", "not slow", "-p", "no:randomly", "-p", "no:cacheprovider"]
        flags += ["-Wignore::pytest.PytestAssertRewriteWarning", *([] if plugins else ["-x"])]
        return int(pytest.main([*flags, *names], plugins))

    def _importing(self, path: str, own: str) -> list[str]:
        """Test files of the package that import the module."""
        module = "darklode." + path.removesuffix(".py").replace("/", ".")
        folder, name = module.rpartition(".")[::2]
        pattern = re.compile(rf"^(from {module} import|from {folder} import .*\b{name}\b|import {module}\b)", re.M)
        files = sorted((self.root / "tests" / Path(path).parts[0] / Path(path).parts[1]).rglob("test_*.py"))
        importing = [file for file in files if pattern.search(file.read_text(encoding="utf-8"))]
        return [name for file in importing if (name := str(file.relative_to(self.root))) != own]

    def _passing(self, names: list[str]) -> list[str]:
        """Those that exist and pass without a mutant."""
        new = [name for name in names if name not in self._seconds and (self.root / name).exists()]
        if new:
            record = self.root / ".record.json"
            in_fork(lambda: self.run_tests(new, DurationRecorder(record)), 1200)
            seconds = json.loads(record.read_text()) if record.exists() else {}
            record.unlink(missing_ok=True)
            for name in new:
                self._seconds[name] = seconds.get(name)
                if self._seconds[name] is None:
                    print(f"{name} fails without a mutant, or has no quick test: left out", flush=True)
        return [name for name in names if self._seconds.get(name) is not None]


class DurationRecorder:
    """A pytest plugin that writes the seconds of each file as JSON; null if one of its tests failed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float | None] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add a test's setup, call or teardown."""
        name = report.nodeid.split("::")[0]
        before = self._seconds.get(name, 0.0)
        self._seconds[name] = None if before is None or report.failed else before + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps(self._seconds))


def preload() -> None:
    """Import once, for all forks, the libraries and the modules that no mutant can change."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for package in PACKAGES:  # for the libraries that they import
        module = importlib.import_module(f"darklode.pipeline.{package}")
        for submodule in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            importlib.import_module(submodule.name)
    for name in list(sys.modules):
        if name.startswith(("darklode.", "helpers")) and name != "darklode.pipeline" and not name.startswith(UNCHANGED):
            del sys.modules[name]


def in_fork(work: Callable[[], int], limit: float) -> int:
    """The exit code of a call in a child process; -9 after `limit` processor seconds, or five times that."""
    if (child := os.fork()) == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
        code = UNKNOWN_EXIT
        with suppress(BaseException):
            code = work()
        os._exit(code)
    ends, done, status = time.monotonic() + 5 * limit, 0, 0
    while not done and time.monotonic() < ends:
        time.sleep(0.02)
        done, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def table(mutants: Sequence[Mutant], seed: int) -> ResultTable:
    """The share of survivors."""
    tried = [mutant for mutant in mutants if mutant.get("verdict", "gone") != "gone" and not mutant.get("equivalent")]
    survivors = sum(mutant["verdict"] == "survived" for mutant in tried)
    equivalent = sum(bool(mutant.get("equivalent")) for mutant in mutants)
    columns = {"seed": "d", "sample": "d", "equivalent": "d", "run": "d", "survive": "d", "share": ".1%"}
    row = [seed, len(mutants), equivalent, len(tried), survivors, survivors / max(len(tried), 1)]
    return ResultTable("Survivors of the quick tests", columns, [row])


def _code(lines: Sequence[str]) -> str:
    return f"`{' '.join(' '.join(lines).split())}`"


def save_sample(mutants: Sequence[Mutant], seed: int) -> None:
    """Write the verdicts so far."""
    SAMPLE.write_text(json.dumps({"seed": seed, "mutants": mutants}, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Draw, run and report."""
    parser = options(__doc__)
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="another number draws a new sample")
    parser.add_argument("--again", action="store_true", help="run the survivors again, against the present tests")
    arguments = parser.parse_args()
    root, seed = Path(__file__).resolve().parents[1], arguments.seed
    saved = json.loads(SAMPLE.read_text(encoding="utf-8")) if SAMPLE.exists() else {}
    is_same = saved.get("seed") == seed and len(saved["mutants"]) == arguments.sample
    mutants = saved["mutants"] if is_same else draw_mutants(root, arguments.sample, seed)
    pending = {None, "survived"} if arguments.again or arguments.quick else {None}
    chosen = [mutant for mutant in mutants if mutant.get("verdict") in pending and not mutant.get("equivalent")]
    os.environ |= {"OMP_NUM_THREADS": "1", "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    with tempfile.TemporaryDirectory(prefix="darklode-mutation-") as folder:
        copy = WorkingCopy(root, Path(folder))
        preload()
        for mutant in chosen[: QUICK if arguments.quick else None]:
            mutant["verdict"] = copy.verdict(mutant)
            print(f"{mutant['path']}:{mutant['line']} {_code(mutant['after'])}: {mutant['verdict']}", flush=True)
            if not arguments.quick:
                save_sample(mutants, seed)
    publish("mutation", [table(mutants, seed)], quick=arguments.quick)


if __name__ == "__main__":
    main()
