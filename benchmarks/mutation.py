"""Mutation test of the packages that compute: the share of small faults in the code that no quick test notices.

    python -m benchmarks.mutation [--seed 25] [--sample 300] [--until 60]
    python -m benchmarks.mutation --again    # run the survivors again, against the present tests

Draws places uniformly from the code of the packages (an operator, comparison, number, boolean, loop, decorator or
`break`; type annotations are left out) and lets cosmic-ray change each in one random way. A mutant is run against the
test file of the same name, then against the other test files of its package that import the module, without the slow
tests. Each runs in a fork of a process that has the libraries loaded, in a copy of the working tree. Mutants that no
test could notice are named in mutation_equivalent.json with the reason and counted apart. Continues where it was
stopped; another seed or sample size draws a new sample. Writes benchmarks/results/mutation.json and mutation.md.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, write

PACKAGES = ("judge", "train", "towers", "laws", "evaluate", "validate", "mine", "triplets")
LIBRARIES = (
    "accelerate datasets duckdb faiss hypothesis moto openai peft pyarrow.compute pyarrow.dataset pyarrow.parquet "
    "pytest scipy.optimize scipy.stats sentence_transformers sklearn.linear_model torch transformers "
    "helpers.browser helpers.flow_fixtures helpers.s3_bucket"
).split()
BELOW = tuple(f"darklode.{name}" for name in "schemas prompts pipeline.base pipeline.ingest pipeline.retrieve".split())
SKIPPED = ("core/Variable", "core/ExceptionReplacer")  # need arguments; fails on dotted names
EQUIVALENT = Path(__file__).with_name("mutation_equivalent.json")
FIGURES = RESULTS / "mutation.json"
Mutant = dict[str, Any]
Position = tuple[int, int]


def places(root: Path) -> Iterator[tuple[str, Position, str, list[tuple[str, int]]]]:
    """File, position, family of operators, and the (operator, occurrence) pairs that change this place."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    operators = {name: get_operator(name)() for name in operator_names() if not name.startswith(SKIPPED)}
    for path in sorted(file for package in PACKAGES for file in (root / "pipeline" / package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        annotations, nodes = list(_annotations(source)), list(ast_nodes(get_ast(source)))
        variants: dict[tuple[Position, str], list[tuple[str, int]]] = defaultdict(list)
        for name, operator in operators.items():
            spans = [span for node in nodes for span in operator.mutation_positions(node)]
            for occurrence, (start, _) in enumerate(spans):
                if not any(first <= start < last for first, last in annotations):
                    variants[start, name.split("_")[0]].append((name, occurrence))
        for (start, family), pairs in sorted(variants.items()):
            yield str(path.relative_to(root)), start, family, pairs


def _annotations(source: str) -> Iterator[tuple[Position, Position]]:
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            if (found := getattr(node, name, None)) is not None:
                yield (found.lineno, found.col_offset), (found.end_lineno, found.end_col_offset)


def draw_mutants(root: Path, n: int, seed: int) -> list[Mutant]:
    """The sample, in random order, so that its beginning is a sample as well."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    generator = random.Random(seed)
    mutants: list[Mutant] = []
    every = list(places(root))
    for path, (line, _), _, pairs in generator.sample(every, len(every)):
        name, occurrence = generator.choice(pairs)
        source = (root / path).read_text(encoding="utf-8")
        mutated = mutate_code(source, get_operator(name)(), occurrence)
        if len(mutants) == n:
            break
        if not _compiles(mutated):  # as where cosmic-ray takes the * between parameters for an operator
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
    """The lines that differ, without what both begin and end with."""
    head = next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )
    old, new = old[head:], new[head:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return old, new


def apply_mutant(source: str, mutant: Mutant) -> str | None:
    """The mutated source, where the original lines still exist; the nearest of equals."""
    lines, before = source.splitlines(), mutant["before"]
    starts = [i for i in range(len(lines)) if lines[i : i + len(before)] == before]
    if not starts:
        return None
    start = min(starts, key=lambda i: abs(i + 1 - mutant["line"]))
    return "\n".join([*lines[:start], *mutant["after"], *lines[start + len(before) :]]) + "\n"


class Tree:
    """A copy of the working tree, in which mutants are run.

    Args:
        root: the working tree.
        folder: an existing folder, for the copy.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        files = subprocess.check_output(["git", "ls-files"], cwd=root, text=True)
        self.root = folder
        for name in files.splitlines():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name, follow_symlinks=False)
        places = [str(folder / name) for name in ("src", ".", "tests")]
        os.environ["PYTHONPATH"], sys.path[:0] = ":".join(places), places
        self._seconds: dict[str, float | None] = {}

    def verdict(self, mutant: Mutant) -> str:
        """Whether the test file of the same name kills it, or another one; "gone" where its lines have changed."""
        path = self.root / mutant["path"]
        source, times = path.read_text(encoding="utf-8"), path.stat()
        changed = apply_mutant(source, mutant)
        if changed is None:
            return "gone"
        own = f"tests/{Path(mutant['path']).parent}/test_{path.name}"
        for kind, names in (("same", [own]), ("other", self._importing(mutant["path"], own))):
            sound = self._sound(names)
            if not sound:
                continue
            try:
                path.write_text(changed, encoding="utf-8")
                os.utime(path, (times.st_atime, time.time() + random.randrange(10**6)))  # compiled files go by it
                if in_fork(lambda sound=sound: self.tests(sound), 60 + 4 * self._took(sound)):  # type: ignore[misc]
                    return f"killed by {kind}"
            finally:
                path.write_text(source, encoding="utf-8")
                os.utime(path, (times.st_atime, times.st_mtime))
        return "survived"

    def tests(self, names: list[str], *plugins: object) -> int:
        """pytest's exit code; called in a fork."""
        import pytest

        os.chdir(self.root)
        quiet = ["-q", "-m", "not slow", "-p", "no:randomly", "-p", "no:cacheprovider"]
        ignored = "-Wignore::pytest.PytestAssertRewriteWarning"
        return int(pytest.main([*quiet, ignored, *([] if plugins else ["-x"]), *names], plugins))

    def _importing(self, path: str, own: str) -> list[str]:
        module = "darklode." + path.removesuffix(".py").replace("/", ".")
        folder, name = module.rpartition(".")[::2]
        wanted = re.compile(rf"^(from {module} import|from {folder} import .*\b{name}\b|import {module}\b)", re.M)
        package = self.root / "tests" / Path(path).parts[0] / Path(path).parts[1]
        files = [file for file in sorted(package.rglob("test_*.py")) if wanted.search(file.read_text(encoding="utf-8"))]
        return [name for file in files if (name := str(file.relative_to(self.root))) != own]

    def _sound(self, names: list[str]) -> list[str]:
        """Those that exist and pass without a mutant."""
        new = [name for name in names if name not in self._seconds and (self.root / name).exists()]
        if new:
            record = self.root / ".record.json"
            in_fork(lambda: self.tests(new, Recorder(record)), 1200)
            seconds = json.loads(record.read_text()) if record.exists() else {}
            record.unlink(missing_ok=True)
            for name in new:
                self._seconds[name] = seconds.get(name)
                if self._seconds[name] is None:
                    print(f"{name} fails without a mutant, or has no quick test: left out", flush=True)
        return [name for name in names if self._seconds.get(name) is not None]

    def _took(self, names: list[str]) -> float:
        return sum(self._seconds[name] or 0.0 for name in names)


class Recorder:
    """A pytest plugin that writes the seconds of each file, null where a test of it failed.

    Args:
        path: of the JSON file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float | None] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add a test's setup, call or teardown."""
        name, before = report.nodeid.split("::")[0], self._seconds.get(report.nodeid.split("::")[0], 0.0)
        self._seconds[name] = None if before is None or report.failed else before + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write them."""
        self._path.write_text(json.dumps(self._seconds))


def preload() -> None:
    """Import the libraries, and of the project what none of the mutants can change, once for all forks."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for package in PACKAGES:  # with the libraries that they import
        found = importlib.import_module(f"darklode.pipeline.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    for name in [
        name for name in sys.modules if name.startswith(("darklode.", "helpers")) and not name.startswith(BELOW)
    ]:
        if name != "darklode.pipeline":
            del sys.modules[name]


def in_fork(work: Callable[[], int], limit: float) -> int:
    """The exit code of some work in a child process; -9 where it took too long, in CPU or wall time."""
    if (child := os.fork()) == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
        code = 99  # what pytest itself does not give
        with suppress(BaseException):
            code = work()
        os._exit(code)
    ends = time.monotonic() + 5 * limit
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def report(mutants: list[Mutant], seed: int) -> None:
    """Figures and the survivors."""
    reasons = {(one["path"], one["after"]): one["reason"] for one in json.loads(EQUIVALENT.read_text())}
    for one in mutants:
        one["equivalent"] = reasons.get((one["path"], "\n".join(one["after"]).strip()))
    tried = [one for one in mutants if one.get("verdict", "gone") != "gone"]
    survivors = [one for one in tried if one["verdict"] == "survived"]
    equivalent, alive = ([one for one in survivors if bool(one["equivalent"]) == which] for which in (True, False))
    n = len(tried) - len(equivalent)
    lines = [
        f"Seed {seed}: {len(tried)} of {len(mutants)} mutants run, {len(equivalent)} of them equivalent. Of the other "
        f"{n}, {len(alive)} survive ({len(alive) / max(n, 1):.1%}).",
        "",
        *(f"- {one['path']}:{one['line']} {_shown(one)}" for one in alive),
        "",
        "Equivalent:",
        "",
        *(f"- {one['path']}:{one['line']} {_shown(one)}: {one['equivalent']}" for one in equivalent),
    ]
    write("mutation", "\n".join(lines), {"seed": seed, "mutants": mutants})


def _shown(mutant: Mutant) -> str:
    return f"`{' '.join(' '.join(mutant['before']).split())}` → `{' '.join(' '.join(mutant['after']).split())}`"


def main() -> None:
    """Draw, run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--until", type=int, default=300, help="run the first so many of the sample")
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    chosen = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    recorded = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if recorded.get("seed") == chosen.seed and len(recorded["mutants"]) == chosen.sample:
        mutants = recorded["mutants"]
    else:
        mutants = draw_mutants(root, chosen.sample, chosen.seed)
        keep(mutants, chosen.seed)
    open_ = (None, "survived") if chosen.again else (None,)
    todo = [one for one in mutants[: chosen.until] if one.get("verdict") in open_ and not one.get("equivalent")]
    os.environ |= {"OMP_NUM_THREADS": "1", "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    with tempfile.TemporaryDirectory(prefix="darklode-mutation-") as folder:
        tree = Tree(root, Path(folder))
        preload()
        for one in todo:
            one["verdict"] = tree.verdict(one)
            print(f"{one['path']}:{one['line']} {_shown(one)}: {one['verdict']}", flush=True)
            keep(mutants, chosen.seed)
    report(mutants, chosen.seed)


def keep(mutants: list[Mutant], seed: int) -> None:
    """Write what is known so far."""
    FIGURES.write_text(json.dumps({"seed": seed, "mutants": mutants}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
