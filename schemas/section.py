"""What every section of the settings is, what a setting can do to a stage's rows, and what an address may be."""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Effect(Enum):
    """What a setting can do to a stage; one that is not marked can change its rows."""

    NO_ROW = "no row"
    BOUND = "bound"


NoRow = Annotated[T, Effect.NO_ROW]
"""Changes no row: where things lie, how fast and at what price it goes. What stands is not redone for it."""

Bound = Annotated[T, Effect.BOUND]
"""Only decides whether a stage fails, or in which files its rows lie: the stage is run again for it, and takes every
finished piece as it is."""


class Section(BaseModel):
    """Settings are read once and never change; a key that is not known is an error, whose text shows no values."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def only(self, *names: str) -> Self:
        """The section with these settings alone: to read another one is an AttributeError.

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
        """The section without these settings: to read one of them is an AttributeError.

        Raises:
            ValueError: there is no such setting.
        """
        self.only(*names)
        return self.only(*(name for name in self.__dict__ if name not in names))

    def decisive(self) -> dict[str, Any]:
        """The settings that a stage hangs on, as plain values: all but those marked `NoRow`, in inner sections, too."""
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


Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
"""A learning rate."""


def holds_secret(url: str) -> bool:
    """Whether a user name, a password or a query stands in it: where keys get written by mistake."""
    parts = urlsplit(url)
    return "@" in parts.netloc or bool(parts.query)


def host_and_path(url: str) -> str | None:
    """Host, port and path without a slash at the end; None where it is no http or https address."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return None
    return parts.netloc + parts.path.rstrip("/")
