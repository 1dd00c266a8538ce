"""Names are nouns and verb phrases: no pronouns or bare participles, and each class name is defined once."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.runs import REPOSITORY

VAGUE = set(
    "one mine found asked told there kept what whole near held of named lying said given known wanted written others "
    "rest those whose most best reached looked place left seen".split()
)
PARTICIPLE = re.compile(
    r"[a-z]+(ed|wn|ept|old|ound|aid|ade|een|eld|own|ost)|of|to|at|from|with|by|one|what|whose|there|most|both"
)
NOUNS = {"bound", "build", "cost", "embed", "feed", "fold", "hold", "need", "seed", "speed", "threshold"}

FILES = [
    *(file for folder in ("pipeline", "flows", "schemas") for file in sorted((REPOSITORY / folder).rglob("*.py"))),
    *(file for folder in (".", "api") for file in sorted((REPOSITORY / "src" / "darklode" / folder).glob("*.py"))),
]


def name_in(node: ast.AST) -> str | None:
    """The variable or parameter that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None


def vague_variables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if (name := name_in(node)) in VAGUE:
            yield getattr(node, "lineno", 0), str(name)


def vague_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name.strip("_")
            if PARTICIPLE.fullmatch(name) and name not in NOUNS:
                yield node.lineno, node.name


def where(file: Path, line: int, name: str) -> str:
    return f"{file.relative_to(REPOSITORY)}:{line}: {name}"


@pytest.mark.parametrize(
    ("source", "names"), [("for one in rows: pass", ["one"]), ("def f(kept, rows): ...", ["kept"])]
)
def test_a_vague_variable_is_found(source: str, names: list[str]) -> None:
    assert [name for _, name in vague_variables(ast.parse(source))] == names


@pytest.mark.parametrize(("name", "vague"), [("joined", True), ("_found", True), ("join", False), ("seed", False)])
def test_a_function_named_by_a_participle_is_found(name: str, vague: bool) -> None:
    assert bool(list(vague_functions(ast.parse(f"def {name}(): ...")))) is vague


def test_variables_are_named_for_what_they_hold() -> None:
    """At most .5 per 1,000 lines."""
    lines, vague = 0, []
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        lines += text.count("\n")
        vague += [where(file, line, name) for line, name in vague_variables(ast.parse(text))]
    assert len(vague) <= 0.5 * lines / 1000, vague


def test_functions_are_named_for_what_they_do() -> None:
    """At most one of a hundred is a bare participle or preposition."""
    functions, vague = 0, []
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        functions += sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))
        vague += [where(file, line, name) for line, name in vague_functions(tree)]
    assert len(vague) <= 0.01 * functions, vague


def test_a_class_name_is_defined_once() -> None:
    places = defaultdict(set)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(str(file.relative_to(REPOSITORY)))
    assert not {name: sorted(files) for name, files in places.items() if len(files) > 1}
