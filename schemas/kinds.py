"""Kinds: what can stand behind a `kind` of the settings, found by its name and loaded when it is named.

A kind of Darklode's own is a file of its group's folder, named as the kind is, whose `KIND` is all that there is to it.
A kind of another package is an entry point of the group: `[project.entry-points."darklode.judges"]`. Nothing above
`schemas` is imported here: a kind is loaded by its name, as a plug-in is.
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
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from darklode.schemas.section import Section


class KindSection(Section):
    """A section that one of several kinds declares: the kind's own keys stand beside those of all kinds."""

    kind: str

    def missing(self) -> list[str]:
        """What the part lacks on this machine, a phrase each; it only looks, and costs nothing."""
        return []


@dataclass(frozen=True)
class KindGroup:
    """The kinds of one part.

    Attributes:
        name: of the part in the plural; other packages' kinds are entry points of `darklode.<name>`.
        folder: the package whose modules are Darklode's own kinds.
        separator: of the words of a name, where the module's has an underscore.
    """

    name: str
    folder: str
    separator: str = "_"

    def own_kinds(self) -> list[str]:
        """Names of Darklode's own kinds; nothing is imported but the packages above them."""
        spec = find_spec(self.folder)
        assert spec is not None
        return sorted(
            module.name.replace("_", self.separator) for module in iter_modules(spec.submodule_search_locations)
        )

    def names(self) -> list[str]:
        """Names of all kinds: Darklode's own, then those of installed packages."""
        own = self.own_kinds()
        return own + sorted(set(_entries(self)) - set(own))

    def load(self, name: str) -> Any:
        """What declares a kind. One of Darklode's own goes before another package's of the same name.

        Raises:
            UnknownKind: there is none of this name, or its package cannot be loaded.
        """
        return _load(self, name)


class UnknownKind(ValueError):
    """There is no kind of this name; the message names the nearest."""


@cache
def _load(group: KindGroup, name: str) -> Any:
    if name in group.own_kinds():
        return import_module(f"{group.folder}.{name.replace(group.separator, '_')}").KIND
    entry = _entries(group).get(name)
    if entry is None:
        raise UnknownKind(f"there is no kind {name!r}; {nearest(name, group.names())}")
    try:
        return entry.load()
    except Exception as error:  # a package that is not ours may fail in any way
        where = f"{entry.value} of {entry.dist.name}" if entry.dist else entry.value
        raise UnknownKind(f"kind {name} cannot be loaded from {where}: {type(error).__name__}: {error}") from error


@cache
def _entries(group: KindGroup) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"darklode.{group.name}")}


_FEW = 20  # names that a line takes


def nearest(name: str, names: list[str]) -> str:
    """A phrase that names the nearest known name, and all of them where they are few or none is near."""
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]}?" if close else ""
    listed = f"known are {', '.join(names)}" if not close or len(names) <= _FEW else ""
    return " ".join(filter(None, (guess, listed)))


@dataclass(frozen=True)
class OfKind:
    """Marks a field whose class is that of the kind it names: `Annotated[JudgeSettings, OfKind(JUDGES, …)]`.

    Attributes:
        group: where kinds are looked up.
        base: the class of the field; what it has beside the kind's own keys is added to them.
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
            raise ValueError("must be a section with a kind")
        return self.section(self.kind_in(value)).model_validate(value)

    def kind_in(self, values: Mapping[str, Any]) -> str:
        """The kind that values name, or the default one.

        Raises:
            UnknownKind: they name none, and none is the default.
        """
        kind = values.get("kind", self.default)
        if not isinstance(kind, str):
            raise UnknownKind(f"kind must be one of {', '.join(self.group.names())}")
        return kind

    @property
    def default(self) -> str | None:
        """The kind of values that name none; None where they have to."""
        default = self.base.model_fields["kind"].default
        return default if isinstance(default, str) else None

    def section(self, kind: str) -> type[KindSection]:
        """The class of a kind's settings here.

        Raises:
            UnknownKind: there is no such kind.
        """
        return _section(self.group, kind, self.base)

    def kinds_with_key(self, key: str) -> list[str]:
        """The kinds that have a key; one that cannot be loaded has none."""
        return [kind for kind in self.group.names() if key in self._fields(kind)]

    def _fields(self, kind: str) -> Mapping[str, FieldInfo]:
        try:
            return self.section(kind).model_fields
        except UnknownKind:
            return {}


@cache
def _section(group: KindGroup, kind: str, base: type[KindSection]) -> type[KindSection]:
    """A kind's class, with the keys of `base` beside its own; their names are the same wherever the kind stands."""
    declared: type[KindSection] = group.load(kind)
    if issubclass(declared, base):
        return declared
    section_name = f"{declared.__name__}In{base.__name__}"

    def reduce(self: KindSection) -> tuple[Any, ...]:  # the class has no place where pickle could find it
        return _restore, (group, kind, base, self.__getstate__())

    body = {"__doc__": declared.__doc__, "__module__": declared.__module__, "__reduce__": reduce}
    return new_class(section_name, (declared, base), exec_body=lambda names: names.update(body))


def _restore(group: KindGroup, kind: str, base: type[KindSection], state: Any) -> KindSection:
    section = _section(group, kind, base)
    restored = section.__new__(section)
    restored.__setstate__(state)
    return restored


def kind_of(field: FieldInfo) -> OfKind | None:
    """The mark of a field whose keys depend on its kind: one section, several by name, or a list of them."""
    return next(_marks([*field.metadata, field.annotation]), None)


def _marks(metadata: list[Any]) -> Iterator[OfKind]:
    for item in metadata:
        if isinstance(item, OfKind):
            yield item
        elif get_origin(item) in {Annotated, dict, tuple}:
            yield from _marks([*getattr(item, "__metadata__", ()), *get_args(item)])


def section_in(field: FieldInfo) -> type[BaseModel] | None:
    """The class of a plain section; None where a field is none."""
    kind = field.annotation
    is_plain = isinstance(kind, type) and issubclass(kind, BaseModel) and kind_of(field) is None
    return kind if is_plain else None  # type: ignore[return-value]
