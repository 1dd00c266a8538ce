"""What a file for `--config` may say besides settings: where things lie, and the preset to start from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from flows.config import DEFAULT_PRESET, nearest, read_config
from pipeline.errors import SettingsError

PATHS = ("docs", "queries", "logs", "out", "mined")


@dataclass(frozen=True)
class Project:
    """A file's paths, by `PATHS`, and its preset.

    Relative paths are those of the file's folder, so that a nightly job may start anywhere.
    """

    paths: Mapping[str, str]
    preset: str

    def path(self, name: str, given: str | None, option: str) -> str:
        """What the command line gives, or the file.

        Raises:
            BadParameter: neither does.
        """
        found = given if given is not None else self.paths.get(name)
        if found is None:
            hint = f"or paths.{name} in the file for --config (`darklode init` writes one)"
            raise typer.BadParameter(f"Missing option '{option}', {hint}")
        return found


def project(config: Path | None, preset: str | None = None) -> Project:
    """What the file says besides settings; nothing where there is no file. A `preset` that is given wins.

    Raises:
        SettingsError: the file cannot be read, or names a path that is none of `PATHS`.
    """
    if config is None:
        return Project({}, preset or DEFAULT_PRESET)
    values = read_config(config)
    paths = values.get("paths") or {}
    if not isinstance(paths, Mapping):
        raise SettingsError(f"{config}: paths holds {', '.join(PATHS)}")
    found = {name: _path(config, name, value) for name, value in paths.items() if value is not None}
    return Project(found, preset or str(values.get("preset") or DEFAULT_PRESET))


def _path(config: Path, name: str, value: Any) -> str:
    if name not in PATHS:
        raise SettingsError(f"{config}: there is no paths.{name}; {nearest(f'paths.{name}', _dotted())}")
    if "://" in str(value):
        return str(value)
    return str(config.parent / Path(str(value)).expanduser())


def _dotted() -> list[str]:
    return [f"paths.{name}" for name in PATHS]
