"""Prompts as data: files of a folder, loaded into typed objects and validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from darklode.pipeline.base.errors import SettingsError

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

T = TypeVar("T")


class Template:
    """A text with placeholders such as {query}.

    Attributes:
        names: of the placeholders, in order of position.
    """

    def __init__(self, text: str) -> None:
        self._parts = _PLACEHOLDER.split(text)  # literal text and names, in turns
        self.names = tuple(self._parts[1::2])

    def fill(self, values: Mapping[str, str]) -> str:
        """Fill all placeholders in one pass, so that no value is interpreted as a template.

        Raises:
            KeyError: a placeholder has no value.
        """
        return "".join(values[part] if odd % 2 else part for odd, part in enumerate(self._parts))


@dataclass(frozen=True)
class PromptFolder:
    """The files of one prompt.

    Attributes:
        owner: `judge`, `term_weighting` or another reader; built-in prompts are in prompts/OWNER.
        folder: with the files.
    """

    owner: str
    folder: Traversable

    @classmethod
    def find(cls, owner: str, name: str, section: str | None = None) -> PromptFolder:
        """Find a built-in prompt by name, or a folder by path.

        Args:
            owner: as above.
            name: name or path.
            section: settings section whose `prompt` names it, for errors; None: the owner's.

        Raises:
            SettingsError: there is neither.
        """
        own = files("darklode.prompts").joinpath(owner)
        if "/" not in name and own.joinpath(name).joinpath("prompt.yaml").is_file():
            return cls(owner, own.joinpath(name))
        if Path(name).is_dir():
            return cls(owner, Path(name).resolve())
        prompt_names = ", ".join(sorted(folder.name for folder in own.iterdir() if folder.is_dir()))
        raise SettingsError(
            f"{section or owner}.prompt: there is no prompt {name}; give the path of a folder, or one of {prompt_names}"
        )

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    def text(self, file: str) -> str:
        """A file's text, stripped.

        Raises:
            SettingsError: it is missing or not text.
        """
        try:
            return self.folder.joinpath(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self.refusal(f"needs a readable file {file}: {error}") from None

    def load(self, file: str, kind: TypeAdapter[T]) -> T:
        """A YAML file in the given type.

        Raises:
            SettingsError: it is missing, not YAML, or of another type.
        """
        try:
            return kind.validate_python(yaml.safe_load(self.text(file)))
        except (ValidationError, yaml.YAMLError) as error:
            raise self.refusal(f"cannot be used: {file}: {error}") from None

    def template(self, file: str, *, needed: tuple[str, ...], allowed: tuple[str, ...] = ()) -> str:
        """A template with validated placeholders.

        Raises:
            SettingsError: it is missing, or a placeholder is missing, unknown or repeated.
        """
        text = self.text(file)
        names = Template(text).names
        if len({*names}) < len(names) or not {*needed} <= {*names} <= {*needed, *allowed}:
            limit_text = f" and at most {_in_braces(allowed)}" if allowed else ""
            raise self.refusal(f"is unclear: {file} must hold {_in_braces(needed)}{limit_text}, once each")
        return text

    def refusal(self, reason: str) -> SettingsError:
        """The error for an invalid prompt."""
        return SettingsError(f"the {self.owner}'s prompt {self.name} {reason}")


def _in_braces(names: tuple[str, ...]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)
