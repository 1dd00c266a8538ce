"""Typed access to settings sections with kinds; to `schemas`, which declares the section, a kind is only keys."""

from typing import TypeVar

from darklode.pipeline.base.errors import SettingsError
from darklode.schemas.kinds import KindSection

Port = TypeVar("Port", bound=KindSection)


def as_kind(settings: KindSection, port: type[Port]) -> Port:
    """The settings as a kind of a port, such as `JudgeKind`.

    Raises:
        SettingsError: another package registered something else under this name.
    """
    if not isinstance(settings, port):
        raise SettingsError(f"kind {settings.kind} must be a {port.__name__}, and {type(settings).__name__} is none")
    return settings
