"""Settings from a preset, a file and the command line, each overriding the one before it."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pipeline.errors import SettingsError
from schemas.settings import OpenAIEncoder, SentenceTransformersEncoder, Settings

DEFAULT_PRESET = "embedded"

FREE = "judge.parameters."
"""Below it, keys are the server's."""

BESIDES = ("paths", "preset")
"""Keys of a settings file that are no settings: see `flows.project`."""


def presets() -> list[str]:
    """Names of the presets that come with Darklode."""
    return sorted(item.name.removesuffix(".yaml") for item in files("flows").joinpath("presets").iterdir())


def load_settings(
    preset: str = DEFAULT_PRESET, config: Path | None = None, assignments: Sequence[str] = ()
) -> Settings:
    """Settings in force: the preset, then the file, then each `section.key=value` (the value is YAML).

    Raises:
        SettingsError: an unknown preset or key (with the nearest known one), a value out of bounds, a file that is
            not YAML.
    """
    values = _preset(preset)
    if config:
        given = read_config(config)
        values = merge(values, {key: value for key, value in given.items() if key not in BESIDES})
    return resolve(merge(values, overrides(assignments)))


def read_config(file: Path) -> dict[str, Any]:
    """A settings file's values.

    Raises:
        SettingsError: it cannot be read, or is not YAML.
    """
    return _yaml(_read(file), str(file))


def overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """Nested sections from `section.key=value` texts; a later one wins.

    Raises:
        SettingsError: a text of another form, or a value that is not YAML.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        values = merge(values, _assignment(assignment))
    return values


def resolve(values: Mapping[str, Any]) -> Settings:
    """Settings from nested plain values.

    Raises:
        SettingsError: as for `load_settings`.
    """
    _check_keys(values)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        found = error.errors()
        where = _setting(found[0]["loc"])
        wrong = dict.fromkeys(
            one["msg"].removeprefix("Value error, ") for one in found if _setting(one["loc"]) == where
        )
        raise SettingsError(f"{where}: {' or '.join(wrong)}{_got(found[0]['input'])}") from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over` in their places; sections merge, values replace."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def known_keys(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Dotted names of all settings."""
    keys = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += known_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys


def nearest(name: str, known: Sequence[str]) -> str:
    """A phrase that names the nearest known name, or all of them."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _preset(name: str) -> dict[str, Any]:
    if name not in presets():
        raise SettingsError(f"there is no preset {name}; {nearest(name, presets())}")
    return _yaml(files("flows").joinpath("presets", f"{name}.yaml").read_text(encoding="utf-8"), name)


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
        raise SettingsError(f"--set takes section.key=value, not {text!r}")
    nested: Any = _scalar(value, text)
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    return dict(nested)


def _scalar(value: str, text: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise SettingsError(f"--set {text}: the value is not YAML") from error


def _setting(place: tuple[int | str, ...]) -> str:
    """The setting that pydantic means: it goes on with list indices and the members of a union."""
    paths = [".".join(map(str, place[:length])) for length in range(1, len(place) + 1)]
    return next((path for path in paths if path in known_keys()), paths[-1])


def _got(value: Any) -> str:
    """The value that was wrong, for an error's text; not if it may hold an address with a password or a key."""
    shown = repr(value)
    return "" if "://" in shown and {"@", "?"} & set(shown) else f" (got {shown})"


def _check_keys(values: Mapping[str, Any]) -> None:
    known = known_keys()
    sections = {key.rpartition(".")[0] for key in known}
    sections |= {section.rpartition(".")[0] for section in sections} | {""}
    for path, _ in leaves(values):
        section, _, rest = path.partition(".")
        if section == "encoders" and rest:
            _check_encoder(path, rest)
            continue
        if path in sections:
            raise SettingsError(f"{path} is a section; set {path}.<key> or leave it out")
        if path not in known and not path.startswith(FREE):
            raise SettingsError(f"there is no setting {path}; {nearest(path, known)}")


def _check_encoder(path: str, rest: str) -> None:
    """Encoders have names of the user's own: `encoders.<name>.<key>`."""
    name, _, key = rest.partition(".")
    known = [key for kind in (SentenceTransformersEncoder, OpenAIEncoder) for key in kind.model_fields]
    if not key:
        raise SettingsError(f"{path} is a section; set {path}.<key> or leave it out")
    if key.partition(".")[0] not in known:
        hint = nearest(f"encoders.{name}.{key}", [f"encoders.{name}.{one}" for one in dict.fromkeys(known)])
        raise SettingsError(f"there is no setting {path}; {hint}")


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in nested sections, with its dotted name."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
