"""How benchmarks say what they found: Markdown for people, JSON for comparison, and the machine they ran on."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """Date, processor count, memory and Python, in one line."""
    memory = psutil.virtual_memory().total / 2**30
    day = datetime.now(UTC).date()
    return f"{day}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [list(head), ["---"] * len(head), *[[str(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def share(value: float | None) -> str:
    """A share in per cent; nothing where it is unknown."""
    return "" if value is None else f"{value:.1%}"


def write(name: str, text: str, figures: object) -> None:
    """Print the text and write it and the figures to benchmarks/results."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(text)
