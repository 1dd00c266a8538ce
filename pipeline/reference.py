"""The reference pages of docs/, made from the schemas: `python -m pipeline.reference` writes them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.settings import Settings
from schemas.table import Table
from schemas.tables import TABLES

HEAD = """\
# Tables

Made from `schemas/tables.py` by `python -m pipeline.reference`; change the schema, not this page.
[The run folder](data.md) says where the tables lie and how to read them.
"""

SETTINGS_HEAD = """\
# Settings

Made from `schemas/settings.py` by `python -m pipeline.reference`; change the settings, not this page.

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

| setting | default | meaning |
|---|---|---|
"""


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
    """Every setting with its default and meaning, as Markdown."""
    return SETTINGS_HEAD + "".join(f"{row}\n" for row in _settings(Settings, ""))


def _settings(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _settings(kind, f"{prefix}{name}.")
        else:
            description = (field.description or "").replace("|", "\\|")
            yield f"| `{prefix}{name}` | {_default(field)} | {description} |"


def _default(field: FieldInfo) -> str:
    return f"`{json.dumps(field.default, ensure_ascii=False)}`"


PAGES = {"tables.md": tables_markdown, "settings.md": settings_markdown}

if __name__ == "__main__":
    for page, render in PAGES.items():
        Path("docs", page).write_text(render(), encoding="utf-8")
