"""Dataset cards: Markdown with the front matter that Hugging Face's tools read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml

from darklode.pipeline.base.artifacts import Run
from darklode.schemas.settings import Settings

Files = Mapping[str, Mapping[str, str]]
"""For each config, the file or pattern of each split, relative to the card's folder."""


def with_front_matter(text: str, front: Mapping[str, Any], configs: Files) -> str:
    """A card with `configs` as the last key of its front matter, if there are any."""
    listed = [
        {"config_name": config, "data_files": [{"split": split, "path": path} for split, path in files.items()]}
        for config, files in configs.items()
        if files
    ]
    keys = {**front, "configs": listed} if listed else dict(front)
    return f"---\n{yaml.safe_dump(keys, sort_keys=False, allow_unicode=True)}---\n{text}"


def document(sections: Sequence[str], tables: Iterable[tuple[str, pa.Table, str]], last: Sequence[str]) -> str:
    """An introduction, each non-empty table (title, table, note), and a closing part."""
    present_sections = list(sections)
    for title, table, note in tables:
        if table.num_rows:
            present_sections += [f"## {title}", *([note] if note else []), to_markdown(table)]
    return "\n\n".join([*present_sections, *last]) + "\n"


def closing(run: Run, settings: Settings, reading: str) -> list[str]:
    """The closing sections of every card: settings, software, license, and how to read the run."""
    return [
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"`{cell(settings.card.license)}`"),
        *("## How to read it", reading),
    ]


def name_of(run: Run, settings: Settings) -> str:
    """The dataset's name: from the settings, or the folder's name."""
    return settings.card.name or run.store.url.rsplit("/", 1)[-1]


def to_markdown(table: pa.Table) -> str:
    """A small table as Markdown: nulls are empty, floats have at most three decimals."""
    lines = [f"| {' | '.join(table.column_names)} |", "|" + "---|" * table.num_columns]
    lines += [f"| {' | '.join(cell(value) for value in row.values())} |" for row in table.to_pylist()]
    return "\n".join(lines)


def cell(value: object) -> str:
    """A value escaped for a Markdown table, so that neither Markdown nor HTML interprets it."""
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
    changed = list(_changed_settings(settings.model_dump(mode="json"), Settings().model_dump(mode="json")))
    return "\n".join(changed) or "None."


def _changed_settings(settings: Mapping[str, Any], default: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _changed_settings(value, default.get(key) or {}, f"{above}{key}.")
        elif value != default.get(key):
            yield f"- `{above}{key}`: `{cell(str(value))}` (default `{cell(str(default.get(key)))}`)"


def software(run: Run) -> str:
    """Versions of the packages that made the run, as a list."""
    versions: dict[str, set[str]] = {}
    for manifest in run.manifests().values():
        for package, version in manifest.software.items():
            versions.setdefault(package, set()).add(version)
    return (
        "\n".join(f"- {package} {', '.join(sorted(versions[package]))}" for package in sorted(versions)) or "None yet."
    )
