"""Base class of settings sections, the effect of a setting on a stage's output, and checks of URLs."""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Effect(Enum):
    """Effect of a setting on a stage's output. A setting without a mark can change rows."""

    NO_ROW = "no row"
    BOUND = "bound"


NoRow = Annotated[T, Effect.NO_ROW]
"""Changes no row: locations, speed, prices. Changing it does not rerun a finished stage."""

Bound = Annotated[T, Effect.BOUND]
"""Decides only whether a stage fails, or how rows are split into files: changing it reruns the stage, which reuses
every finished part."""


class Section(BaseModel):
    """A section of the settings: frozen; unknown keys are errors; messages show no values, which may be secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def only(self, *names: str) -> Self:
        """A copy with these settings only; reading another one raises AttributeError.

        Raises:
            ValueError: there is no such setting.
        """
        unknown = set(names) - set(type(self).model_fields)
        if unknown:
            raise ValueError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        narrow = self.model_copy()
        for name in set(narrow.__dict__) - set(names):
            del narrow.__dict__[name]
        return narrow

    def but(self, *names: str) -> Self:
        """A copy without these settings; reading one of them raises AttributeError.

        Raises:
            ValueError: there is no such setting.
        """
        self.only(*names)
        return self.only(*(name for name in self.__dict__ if name not in names))

    def decisive(self) -> dict[str, Any]:
        """The settings that a stage's rows depend on, as plain values: all but those marked `NoRow`, also nested."""
        return _plain(self, {Effect.NO_ROW})

    def shaping(self) -> dict[str, Any]:
        """The settings that can change a row, as plain values: neither `NoRow` nor `Bound`."""
        return _plain(self, {Effect.NO_ROW, Effect.BOUND})


def _plain(section: Section, without: set[Effect]) -> dict[str, Any]:
    fields = type(section).model_fields
    names = [
        name for name in fields if name in section.__dict__ and without.isdisjoint(_effects(fields[name].metadata))
    ]
    dumped = section.model_dump(mode="json", include=set(names))
    return {name: _value(section.__dict__[name], dumped[name], without) for name in names}


def _value(value: object, dumped: Any, without: set[Effect]) -> Any:
    """A setting's plain value; what is marked inside of it is left out, too."""
    if isinstance(value, Section):
        return _plain(value, without)
    if isinstance(value, tuple):
        return [_value(item, plain, without) for item, plain in zip(value, dumped, strict=True)]
    if isinstance(value, Mapping):
        return {key: _value(item, dumped[key], without) for key, item in value.items()}
    return dumped


def _effects(metadata: list[Any]) -> set[Effect]:
    return {item for item in metadata if isinstance(item, Effect)}


class ColumnNames(Section):
    """Maps each column of Darklode's table to the name of the source's column.

    The description of a field lists the names that are tried if it is null; the first present is used.
    """


Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
"""A learning rate."""


def holds_secret(url: str) -> bool:
    """Whether the URL contains a user name, password or query string: places where people put API keys by mistake."""
    parts = urlsplit(url)
    return "@" in parts.netloc or bool(parts.query)


def host_and_path(url: str) -> str | None:
    """Host, port and path without trailing slashes; None if it is no http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return None
    return parts.netloc + parts.path.rstrip("/")
