"""What holds the house together, besides the directions of imports, which `make lint` checks."""

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from darklode import pipeline
from darklode.schemas import settings
from darklode.schemas.tables import TABLES
from helpers.runs import REPOSITORY

PACKAGES = ("flows", "pipeline", "schemas")
MODULES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def name_of(module: Path) -> str:
    return module.relative_to(REPOSITORY).as_posix()


def test_importing_the_pipeline_does_not_load_prefect() -> None:
    names = [found.name for found in pkgutil.walk_packages(pipeline.__path__, "darklode.pipeline.")]
    assert "darklode.pipeline.retrieve.retrievers.bm25" in names
    code = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nsys.exit('prefect' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def undocumented(node: Definition, name: str) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring; a method of a few lines needs none."""
    if ast.get_docstring(node) is None:
        yield name
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
            short = isinstance(node, ast.ClassDef) and len(child.body) <= 3
            if not short and not isinstance(node, ast.FunctionDef):
                yield from undocumented(child, f"{name}:{child.name}")


def test_every_public_module_class_and_function_has_a_docstring() -> None:
    assert not [name for module in MODULES for name in undocumented(ast.parse(module.read_text()), name_of(module))]


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A settings type and those of the sections in it."""
    yield model
    for field in model.model_fields.values():
        for kind in kinds(field.annotation):
            yield from sections(kind)


def kinds(annotation: Any) -> list[type[BaseModel]]:
    """The settings types that an annotation names, also as members of a union or a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in kinds(part)]


def test_every_setting_says_what_it_means() -> None:
    found = set(sections(settings.Settings))
    assert {settings.DocumentColumns, settings.PoolSettings, settings.Settings} <= found
    silent = [
        f"{model.__name__}.{name}"
        for model in found
        for name, field in model.model_fields.items()
        if not field.description and not kinds(field.annotation)
    ]
    assert not silent


@pytest.mark.parametrize("name", TABLES)
def test_every_table_says_what_it_holds(name: str) -> None:
    table = TABLES[name]
    assert table.about
    assert table.name == name
    assert [field.name for field in table.schema if not (field.metadata or {}).get(b"description")] == []
    assert set(table.key) <= set(table.schema.names)
    assert len(set(table.schema.names)) == len(table.schema.names)
