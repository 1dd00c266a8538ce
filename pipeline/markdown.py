"""Pieces of a dataset card, as Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from pipeline.artifacts import Run
from schemas.settings import Settings


def markdown(table: pa.Table) -> str:
    """A small table as Markdown: nulls empty, floats with at most three decimals."""
    lines = [f"| {' | '.join(table.column_names)} |", "|" + "---|" * table.num_columns]
    lines += [f"| {' | '.join(cell(value) for value in row.values())} |" for row in table.to_pylist()]
    return "\n".join(lines)


def cell(value: object) -> str:
    """A value as it stands in a Markdown table, with nothing in it that Markdown or HTML would read."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int):
        return f"{value:,}"
    text = " ".join(str(value).split())
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'")


def changed_settings(settings: Settings) -> str:
    """The settings that differ from the defaults, as a list."""
    changed = list(_changed(settings.model_dump(mode="json"), Settings().model_dump(mode="json")))
    return "\n".join(changed) or "None."


def _changed(mine: Mapping[str, Any], default: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in mine.items():
        if isinstance(value, Mapping):
            yield from _changed(value, default.get(key) or {}, f"{above}{key}.")
        elif value != default.get(key):
            yield f"- `{above}{key}`: `{cell(str(value))}` (default `{cell(str(default.get(key)))}`)"


def software(run: Run) -> str:
    """The packages that made the run, with their versions, as a list."""
    found: dict[str, set[str]] = {}
    for manifest in run.manifests().values():
        for package, version in manifest.software.items():
            found.setdefault(package, set()).add(version)
    return "\n".join(f"- {package} {', '.join(sorted(found[package]))}" for package in sorted(found)) or "None yet."
