"""Kinds: the implementations that a `kind` setting can name, found by name and loaded on first use.

A built-in kind is a module in its group's package, with the kind's name and a variable `KIND`. A kind of another
package is an entry point of the group: `[project.entry-points."darklode.judges"]`. Loading by name keeps `schemas`
free of imports from `pipeline`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from types import new_class
from typing import Annotated, Any, ClassVar, get_args, get_origin

from pydantic import BaseModel, Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from darklode.schemas.section import Section

KindName = Annotated[
    str, Field(description="Implementation (kind). Each kind has settings of its own besides those of the section.")
]


class KindSection(Section):
    """A section with several implementations (kinds), each with settings of its own besides those of all kinds.

    Attributes:
        GUIDE: page that describes the kind's settings, relative to the reference; empty: the reference does.
    """

    GUIDE: ClassVar[str] = ""

    kind: str

    def missing(self) -> list[str]:
        """What is missing on this machine to use the kind, a phrase each; makes no paid call."""
        return []


@dataclass(frozen=True)
class KindGroup:
    """The kinds of one section.

    Attributes:
        name: the entry-point group of other packages' kinds is `darklode.<name>`.
        folder: the package whose modules are the built-in kinds.
        separator: word separator in kind names; module names have underscores.
    """

    name: str
    folder: str
    separator: str = "_"

    def own_kinds(self) -> list[str]:
        """Names of the built-in kinds; imports only the packages above them."""
        spec = find_spec(self.folder)
        assert spec is not None
        return sorted(
            module.name.replace("_", self.separator) for module in iter_modules(spec.submodule_search_locations)
        )

    def names(self) -> list[str]:
        """Names of the built-in kinds, then of those of installed packages."""
        own = self.own_kinds()
        return own + sorted(set(_entries(self)) - set(own))

    def load(self, name: str) -> Any:
        """The settings class of a kind. A built-in kind takes precedence over another package's of the same name.

        Raises:
            UnknownKind: there is no such kind, or its package cannot be loaded.
        """
        return _load(self, name)


class UnknownKind(ValueError):
    """There is no such kind; the message names the nearest."""


@cache
def _load(group: KindGroup, name: str) -> Any:
    if name in group.own_kinds():
        return import_module(f"{group.folder}.{name.replace(group.separator, '_')}").KIND
    entry = _entries(group).get(name)
    if entry is None:
        raise UnknownKind(f"there is no kind {name!r}; {nearest(name, group.names())}")
    try:
        return entry.load()
    except Exception as error:  # importing another package may raise anything
        where = f"{entry.value} of {entry.dist.name}" if entry.dist else entry.value
        raise UnknownKind(f"kind {name} cannot be loaded from {where}: {type(error).__name__}: {error}") from error


@cache
def _entries(group: KindGroup) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"darklode.{group.name}")}


_FEW = 20  # names that fit into a line of an error message


def nearest(name: str, names: list[str]) -> str:
    """A phrase with the nearest known name; it lists all names if they are few or none is near."""
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]}?" if close else ""
    listed = f"known are {', '.join(names)}" if not close or len(names) <= _FEW else ""
    return " ".join(filter(None, (guess, listed)))


@dataclass(frozen=True)
class OfKind:
    """Marks a field whose class depends on its `kind` value: `Annotated[JudgeSettings, OfKind(JUDGES, …)]`.

    Attributes:
        group: where kinds are looked up.
        base: declared class of the field; its settings are added to the kind's own.
    """

    group: KindGroup
    base: type[KindSection]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        as_its_class = core_schema.simple_ser_schema("any")  # a field's own class has the base's keys alone
        return core_schema.no_info_plain_validator_function(self._validate, serialization=as_its_class)

    def _validate(self, value: Any) -> KindSection:
        if type(value) is self.base:
            value = value.model_dump(exclude_unset=True)
        if isinstance(value, self.base):
            return value
        if not isinstance(value, Mapping):
            raise ValueError("must be a section with a key `kind`")
        return self.section(self.kind_in(value)).model_validate(value)

    def kind_in(self, values: Mapping[str, Any]) -> str:
        """The kind in the values, or the default.

        Raises:
            UnknownKind: the values have no kind, and there is no default.
        """
        kind = values.get("kind", self.default)
        if not isinstance(kind, str):
            raise UnknownKind(f"kind must be one of {', '.join(self.group.names())}")
        return kind

    @property
    def default(self) -> str | None:
        """The default kind; None if a kind is required."""
        default = self.base.model_fields["kind"].default
        return default if isinstance(default, str) else None

    def section(self, kind: str) -> type[KindSection]:
        """The settings class of a kind in this section.

        Raises:
            UnknownKind: there is no such kind.
        """
        return _section(self.group, kind, self.base)

    def kinds_with_key(self, key: str) -> list[str]:
        """The kinds with this key; kinds that cannot be loaded are skipped."""
        return [kind for kind in self.group.names() if key in self._fields(kind)]

    def _fields(self, kind: str) -> Mapping[str, FieldInfo]:
        try:
            return self.section(kind).model_fields
        except UnknownKind:
            return {}


@cache
def _section(group: KindGroup, kind: str, base: type[KindSection]) -> type[KindSection]:
    """A kind's class with the fields of `base` added to its own."""
    declared: type[KindSection] = group.load(kind)
    if issubclass(declared, base):
        return declared
    section_name = f"{declared.__name__}In{base.__name__}"

    def reduce(self: KindSection) -> tuple[Any, ...]:  # pickle cannot import a class that is made at run time
        return _restore, (group, kind, base, self.__getstate__())

    body = {"__doc__": declared.__doc__, "__module__": declared.__module__, "__reduce__": reduce}
    return new_class(section_name, (declared, base), exec_body=lambda names: names.update(body))


def _restore(group: KindGroup, kind: str, base: type[KindSection], state: Any) -> KindSection:
    section = _section(group, kind, base)
    restored = section.__new__(section)
    restored.__setstate__(state)
    return restored


def kind_of(field: FieldInfo) -> OfKind | None:
    """The mark of a field that holds a section with a kind, a mapping of names to such sections, or a list of them."""
    return next(_marks([*field.metadata, field.annotation]), None)


def _marks(metadata: list[Any]) -> Iterator[OfKind]:
    for item in metadata:
        if isinstance(item, OfKind):
            yield item
        elif get_origin(item) in {Annotated, dict, tuple}:
            yield from _marks([*getattr(item, "__metadata__", ()), *get_args(item)])


def section_in(field: FieldInfo) -> type[BaseModel] | None:
    """The class of a field that is a section without kinds; None for other fields."""
    kind = field.annotation
    is_plain = isinstance(kind, type) and issubclass(kind, BaseModel) and kind_of(field) is None
    return kind if is_plain else None  # type: ignore[return-value]
