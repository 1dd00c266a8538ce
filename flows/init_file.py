"""The settings file that `darklode init` writes: what was chosen, and beside it the settings one looks for next."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from flows.project import PATHS
from schemas.settings import Settings

OFFERED = """
    ingest.queries.columns.text ingest.queries.columns.tenant ingest.documents.columns.text
    ingest.documents.columns.tenant
    clean.language clean.min_percentile clean.max_percentile clean.per_cluster clean.keep_all clean.mask_personal_data
    chunk.size
    pool.depth pool.rule pool.budget
    judge.kind judge.base_url judge.model judge.key_env judge.threshold judge.spending_limit
    split.test_share triplets.negatives
    review.query_share review.pairs validation.min_kappa validation.min_recall
    card.name card.license
""".split()
OFFERED_FOR_LOGS = """
    logs.columns.query logs.columns.doc_id logs.columns.timestamp logs.columns.clicked logs.columns.tenant
    click.model associate.max_per_query mining.max_drift
""".split()
"""Shown with their default and its meaning, where nothing else was chosen."""

_HEAD = """\
# Darklode: the settings of this project. A line without a # is in force; every setting that is not here, too, has its
# default: docs/settings.md lists all, `darklode status RUN --settings` shows those of a run.
#
{commands}
#
# Relative paths start at this file's folder. Keys and passwords never belong here: name their environment variable.
"""
_COMMANDS = {
    "queries": "#   darklode build --config {file}     documents and queries become a benchmark and triplets",
    "logs": "#   darklode mine --config {file}      a search log becomes triplets, night after night",
}
_MEANINGS = {
    "docs": "documents",
    "queries": "the query log",
    "logs": "the search log with its clicks",
    "out": "the benchmark's run: a folder or s3://bucket/prefix",
    "mined": "the run of the mined triplets",
}


def settings_file(name: str, paths: Mapping[str, str], preset: str, chosen: Mapping[str, Any]) -> str:
    """The file's text.

    Args:
        name: the file's, for the commands in its head.
        paths: by `PATHS`.
        preset: where the settings start from.
        chosen: dotted settings that differ from the defaults.
    """
    commands = "\n".join(line.format(file=name) for key, line in _COMMANDS.items() if key in paths)
    lines = [_HEAD.format(commands=commands), "paths:"]
    lines += [f"  {key}: {_value(paths[key])}  # {_MEANINGS[key]}" for key in PATHS if key in paths]
    lines += [f"preset: {_value(preset)}  # `darklode doctor` lists what each needs"]
    offered = OFFERED + (OFFERED_FOR_LOGS if "logs" in paths else [])
    return "\n".join([*lines, *_settings(Settings, "", {*offered, *chosen}, chosen)]) + "\n"


def _settings(
    section: type[BaseModel], above: str, wanted: Collection[str], chosen: Mapping[str, Any]
) -> Iterator[str]:
    """Lines of a section and of those in it, by the schema; one that holds nothing in force is a comment, too."""
    indent = "  " * above.count(".")
    for name, field in section.model_fields.items():
        key, kind = above + name, field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            lines = list(_settings(kind, f"{key}.", wanted, chosen))
            if lines:
                on = any(one.startswith(f"{key}.") for one in chosen)
                yield from [*([] if above else [""]), f"{_mark(on)}{indent}{name}:", *lines]
        elif key in wanted:
            value = _value(chosen.get(key, field.default))
            yield f"{_mark(key in chosen)}{indent}{name}: {value}  # {field.description}"


def _mark(on: bool) -> str:
    return "" if on else "# "


def _value(value: Any) -> str:
    """A value on one line: JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)
