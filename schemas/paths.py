"""Settings that are paths: marked in their type, and made absolute, so that the working folder does not matter."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from darklode.schemas.kinds import OfKind, UnknownKind, kind_of, section_in

T = TypeVar("T")

_DATABASE_FILE = re.compile(r"((?:sqlite|duckdb)(?:\+\w+)?://)/([^/?][^?]*)")
"""A relative path of a database in a file, which follows three slashes; an absolute one follows four."""


@dataclass(frozen=True)
class PathField:
    """Marks a setting that holds a path or a list of paths. URLs such as `s3://…` are left as they are.

    Attributes:
        or_name: the value may also be a name; it is a path if a folder of that name exists.
        names: names that are never paths.
        prefix: what a value begins with if a path follows; other values are none.
    """

    or_name: bool = False
    names: tuple[str, ...] = ()
    prefix: str = ""


FilePath = Annotated[T, PathField()]
FolderOrName = Annotated[T, PathField(or_name=True)]


def to_absolute(path: str, base: Path | None = None) -> str:
    """Make a path absolute, relative to `base` (default: the working folder).

    URLs are returned unchanged, except those of a database in a file, such as `sqlite:///shop.db?table=docs`.
    """
    if file := _DATABASE_FILE.match(path):
        return f"{file[1]}/{to_absolute(file[2], base)}{path[file.end() :]}"
    return path if "://" in path else str((base or Path()).absolute() / Path(path).expanduser())


def resolve_paths(values: Mapping[str, Any], base: Path, model: type[BaseModel]) -> dict[str, Any]:
    """Make the settings that are paths absolute; other values, unknown keys too, are returned unchanged.

    Args:
        values: nested plain values by field name of `model`; may be incomplete or invalid.
        base: folder of relative paths.
        model: a section, or all settings.
    """
    return {name: _resolve_value(model.model_fields.get(name), value, base) for name, value in values.items()}


def _resolve_value(field: FieldInfo | None, value: Any, base: Path) -> Any:
    if field is None:
        return value
    if path_field := next((item for item in field.metadata if isinstance(item, PathField)), None):
        return (
            [_path(path_field, item, base) for item in value]
            if isinstance(value, list)
            else _path(path_field, value, base)
        )
    section, mark = section_in(field), kind_of(field)
    if section and isinstance(value, Mapping):
        return resolve_paths(value, base, section)
    if mark and isinstance(value, list):
        return [_of_kind(mark, item, base) for item in value]
    if mark and get_origin(field.annotation) is dict and isinstance(value, Mapping):
        return {name: _of_kind(mark, item, base) for name, item in value.items()}
    return _of_kind(mark, value, base) if mark else value


def _of_kind(mark: OfKind, values: Any, base: Path) -> Any:
    if not isinstance(values, Mapping):
        return values
    try:
        return resolve_paths(values, base, mark.section(mark.kind_in(values)))
    except UnknownKind:
        return values


def _path(path_field: PathField, value: Any, base: Path) -> Any:
    if not isinstance(value, str) or not value or not value.startswith(path_field.prefix):
        return value
    if path_field.prefix:
        return path_field.prefix + to_absolute(value.removeprefix(path_field.prefix), base)
    absolute_path = to_absolute(value, base)
    is_path = not path_field.or_name or (value not in path_field.names and Path(absolute_path).is_dir())
    return absolute_path if is_path else value
