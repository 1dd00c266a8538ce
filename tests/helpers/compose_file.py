"""docker-compose.yml as its reader sees it: anchors merged, variables filled in from an env file."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from helpers.runs import REPOSITORY

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?P<how>:?[-?])?(?P<rest>[^}]*)\}")


def compose(environment: Mapping[str, str]) -> dict[str, Any]:
    """The file's content.

    Raises:
        KeyError: a variable that must be set is missing or empty.
    """
    content: dict[str, Any] = _filled(yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text()), environment)
    return content


def variables(required: bool) -> set[str]:
    """The variables that the file reads, those with a default or those that must be set."""
    found = _VARIABLE.finditer((REPOSITORY / "docker-compose.yml").read_text())
    return {one["name"] for one in found if (one["how"] == ":?") == required}


def example() -> dict[str, str]:
    """What .env.example sets."""
    lines = (REPOSITORY / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _filled(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, environment) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, environment) for one in value]
    return _VARIABLE.sub(lambda found: _value(found, environment), value) if isinstance(value, str) else value


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    given = environment.get(found["name"])
    if found["how"] == ":?" and not given:
        raise KeyError(found["name"])
    if found["how"] == "-":  # a default of what is not set at all: empty stays empty
        return found["rest"] if given is None else given
    return given or found["rest"]
