"""What holds the house together, besides the directions of imports, which `make lint` checks."""

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from darklode import flows, pipeline
from helpers.runs import REPOSITORY

PACKAGES = ("flows", "pipeline", "schemas")
EXTRAS = "accelerate datasets faiss fastembed onnxruntime peft prefect_ray ray sentence_transformers torch".split()
EXTRAS += ["transformers", "vllm"]
MODULES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))

# A finder that knows none of the extras; `sys.modules[name] = None` would be read as a module by scipy.
WITHOUT_EXTRAS = f"""
import importlib, importlib.abc, sys

class WithoutExtras(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, WithoutExtras())
"""

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def name_of(module: Path) -> str:
    return module.relative_to(REPOSITORY).as_posix()


@pytest.mark.slow
def test_importing_the_pipeline_does_not_load_prefect() -> None:
    names = [found.name for found in pkgutil.walk_packages(pipeline.__path__, "darklode.pipeline.")]
    assert "darklode.pipeline.retrieve.retrievers.bm25" in names
    code = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nsys.exit('prefect' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_flows_and_commands_load_where_no_extra_is_installed() -> None:
    names = [found.name for found in pkgutil.walk_packages(flows.__path__, "darklode.flows.")]
    assert "darklode.flows.prefect.orchestration" in names
    code = WITHOUT_EXTRAS + f"for name in {names}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def undocumented(node: Definition, name: str) -> Iterator[str]:
    """Public modules, classes and functions without a docstring; methods and functions of a few lines need none."""
    if ast.get_docstring(node) is None:
        yield name
    if not isinstance(node, ast.Module):
        return
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        if isinstance(child, ast.ClassDef) or len(child.body) > 3:
            yield from undocumented(child, f"{name}:{child.name}")


def test_every_public_module_class_and_function_has_a_docstring() -> None:
    assert not [name for module in MODULES for name in undocumented(ast.parse(module.read_text()), name_of(module))]


def test_nine_of_ten_modules_have_tests_of_their_own_name() -> None:
    """`pipeline/room/x.py` is tested by `tests/pipeline/room/test_x.py`; a reader knows where to look."""
    modules = [path.relative_to(REPOSITORY) for path in MODULES if path.name != "__init__.py"]
    without = [str(path) for path in modules if not (REPOSITORY / "tests" / path.parent / f"test_{path.name}").exists()]
    assert len(without) < 0.1 * len(modules), without


def dotted_name(module: Path) -> str:
    name = ".".join(("darklode", *module.relative_to(REPOSITORY).with_suffix("").parts))
    return name.removesuffix(".__init__")


def imported_modules(module: Path, known: Collection[str]) -> set[str]:
    """All modules of ours that a module imports: at its top, within functions, and for types only."""
    imported = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= members if members <= known else members & known | {node.module}
    return imported & set(known) - {dotted_name(module)}


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Lazy and type-only imports included."""
    names = {dotted_name(module) for module in MODULES}
    graph = {dotted_name(module): imported_modules(module, names) for module in MODULES}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_no_module_is_too_long_to_be_read() -> None:
    lengths = {name_of(module): module.read_text().count("\n") for module in MODULES}
    assert not {name: lines for name, lines in lengths.items() if lines > 400}
