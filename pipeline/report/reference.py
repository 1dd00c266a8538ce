"""Generates docs/tables.md and docs/settings.md: `python -m darklode.pipeline.report.reference`."""

import json
from inspect import cleandoc
from pathlib import Path

import pyarrow as pa
from pydantic.fields import FieldInfo

from darklode.schemas.setting_names import Key, keys, kinds
from darklode.schemas.table import Table
from darklode.schemas.tables import TABLES

HEAD = """\
# Tables

Made from `schemas/tables.py` by `python -m darklode.pipeline.report.reference`; change the schema, not this page.
[The run folder](run-folder.md) says how to read them.
"""

SETTINGS_HEAD = """\
# Settings

Made from the settings and the kinds by `python -m darklode.pipeline.report.reference`; change these, not this page.

Set one with `--set clean.language=null` (the value is YAML), or several in a YAML file with `--config`:

```yaml
clean:
  language: null
pool:
  rule: fused
  budget: 210
```

A preset comes first, then the file, then `--set`. An unknown key is an error that names the nearest known one.
`darklode status RUN --settings` prints those of a run.

The judge, each member of its panel, encoders, retrievers and the planner are of a kind. Each kind has keys of its own
beside the section's: they have tables below. `--set judge.kind=llm --set judge.model=NAME` comes in any order, and
another kind leaves the keys of the one before behind. Packages can add kinds: [Extend Darklode](../guides/extend.md).

"""

ROWS_HEAD = "| setting | default | meaning |\n|---|---|---|\n"


def tables_markdown() -> str:
    """Every table with its key and its fields, as Markdown."""
    return "\n".join([HEAD, *(_section(table) for table in TABLES.values())])


def _section(table: Table) -> str:
    key = ", ".join(f"`{name}`" for name in table.key) or "none, rows have no identity"
    about = table.about[0].upper() + table.about[1:]
    head = [f"## {table.name}", f"{about}. Key: {key}.", "| field | type | null | meaning |\n|---|---|---|---|"]
    return "\n\n".join(head) + "\n" + "\n".join(_row(field) for field in table.schema) + "\n"


def _row(field: pa.Field) -> str:
    description = field.metadata[b"description"].decode().replace("|", "\\|")
    return f"| `{field.name}` | {_type(field.type)} | {'yes' if field.nullable else ''} | {description} |"


def _type(kind: pa.DataType) -> str:
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)


def settings_markdown() -> str:
    """Every setting with its default and meaning, as Markdown: those of all kinds first, then each kind's own."""
    every = list(keys())
    parts = [SETTINGS_HEAD + ROWS_HEAD + "".join(_setting(key) for key in every if not key.kind)]
    for section, mark in kinds():
        for kind in mark.group.own_kinds():
            own = [_setting(key) for key in every if key.kind == kind and key.path.rpartition(".")[0] == section]
            about = cleandoc(mark.section(kind).__doc__ or "")
            parts.append(f"## `{section}.kind: {kind}`\n\n{about}\n" + ("\n" + ROWS_HEAD + "".join(own) if own else ""))
    return "\n".join(parts)


def _setting(key: Key) -> str:
    description = (key.field.description or "").replace("|", "\\|")
    return f"| `{key.path}` | {_default(key.field)} | {description} |\n"


def _default(field: FieldInfo) -> str:
    return "required" if field.is_required() else f"`{json.dumps(field.default, ensure_ascii=False)}`"


PAGES = {"reference/tables.md": tables_markdown, "reference/settings.md": settings_markdown}

if __name__ == "__main__":
    for page, render in PAGES.items():
        Path("docs", page).write_text(render(), encoding="utf-8")
