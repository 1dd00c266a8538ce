"""Benchmark results and the page made from them.

    python -m benchmarks.report    # write docs/benchmarks.md

A benchmark saves its tables in benchmarks/results/NAME.json. The page takes heading and text of a section from the
module's docstring and the figures from its JSON file.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
ALL = (
    "quality fusion judge_quality label_sets judge_learning panels estimates review_sampling judge_probe judge_distil "
    "generation_stop bm25 dense judge_client mining_night mining_year admission soak lending adapt adapt_ablation "
    "term_vectors label_weights tenants model_swap stage_one students reranker index scaling memory startup mutation"
).split()
"""The benchmarks, in the order of the page."""

INTRODUCTION = """\
<!-- Made by `python -m benchmarks.report` from benchmarks/results. Do not edit. -->

# Benchmarks

`make bench` runs all benchmarks, one after another, and writes this page; `python -m benchmarks --quick` measures
small sizes and only prints. `mutation` runs on its own. Labelled collections are read from `../shared/collections`,
or from the folder named by `--collections`; they are not part of this project, and a benchmark without its collection
is skipped.

The machine is shared with other work, so ratios are more reliable than absolute times. "Processor seconds" are summed
over all threads; other work on the machine changes them little.
"""


@dataclass(frozen=True)
class ResultTable:
    """Figures of a benchmark.

    Attributes:
        title: unique in the benchmark; a new measurement replaces the table of the same title.
        columns: name and format specification of each column; an empty specification prints the value as it is.
        rows: one value for each column; None if it was not measured.
        note: a sentence below the table.
        packages: distributions whose versions matter to the figures.
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[object]]
    note: str = ""
    packages: Sequence[str] = field(default=())


def options(about: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure small sizes, and print without saving")
    return parser


def machine() -> str:
    """Processor count, memory, system and Python version."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def publish(name: str, tables: Sequence[ResultTable], *, quick: bool = False) -> None:
    """Print the tables, and unless `quick` save them in benchmarks/results/NAME.json."""
    context = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
    }
    records = [_record(table, context) for table in tables]
    for record in records:
        print(f"{record['title']}\n\n{markdown_table(record['columns'], record['rows'])}\n")
    if quick:
        return
    RESULTS.mkdir(exist_ok=True)
    new = {record["title"]: record for record in records}
    merged = {record["title"]: record for record in read_result(name)} | new
    _write_json(RESULTS / f"{name}.json", {"benchmark": name, "tables": list(merged.values())})


def _record(table: ResultTable, context: Mapping[str, object]) -> dict[str, Any]:
    fields = asdict(table)
    packages = fields.pop("packages")
    rows = [[_rounded(value) for value in row] for row in table.rows]
    return fields | {"rows": rows} | dict(context) | {"versions": {name: version(name) for name in packages}}


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Indented, but with one line for each row of a table."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\n[^\[\]{}]*\]", lambda row: re.sub(r"\n\s*", " ", row[0]).replace("[ ", "["), text)
    path.write_text(text.replace(" ],", "],").replace(" ]\n", "]\n") + "\n", encoding="utf-8")


def read_result(name: str) -> list[dict[str, Any]]:
    """The saved tables of a benchmark; empty if it was not measured."""
    path = RESULTS / f"{name}.json"
    tables: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["tables"] if path.exists() else []
    return tables


def markdown_table(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table of formatted values."""
    lines = [list(columns), ["---"] * len(columns)]
    lines += [[_formatted(value, form) for value, form in zip(row, columns.values(), strict=True)] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _formatted(value: object, form: str) -> str:
    if value is None:
        return "–"
    return format(value, form) if isinstance(value, int | float) else str(value)


def make_page() -> str:
    """The text of docs/benchmarks.md."""
    return "\n".join([INTRODUCTION, *(_section(name) for name in ALL)])


def _section(name: str) -> str:
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))) or name
    heading, _, text = docstring.partition("\n")
    parts = [f"## {heading.rstrip('.')}", text.strip(), *(_shown(table) for table in read_result(name))]
    return "\n\n".join(parts if len(parts) > 2 else [*parts, "Not measured yet."]) + "\n"


def _shown(table: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in table["versions"].items())
    where = [table["date"], table["machine"], *([f"load {table['load']}"] if table["load"] is not None else [])]
    context = f"*{'; '.join([', '.join(where), *([versions] if versions else [])])}*"
    below = [table["note"]] if table["note"] else []
    return "\n\n".join([f"**{table['title']}**", markdown_table(table["columns"], table["rows"]), *below, context])


def main() -> None:
    """Write docs/benchmarks.md."""
    PAGE.write_text(make_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
