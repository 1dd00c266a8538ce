"""Prompts as data: files of a folder, read into typed objects and checked."""

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
    """A text with placeholders, such as {query}.

    Attributes:
        names: the placeholders' names, in order of place.
    """

    def __init__(self, text: str) -> None:
        self._parts = _PLACEHOLDER.split(text)  # literal text and names, in turns
        self.names = tuple(self._parts[1::2])

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with a value for every placeholder: in one pass, so that no value is read as a template.

        Raises:
            KeyError: a placeholder has no value.
        """
        return "".join(values[part] if odd % 2 else part for odd, part in enumerate(self._parts))


@dataclass(frozen=True)
class PromptFolder:
    """The files of one prompt.

    Attributes:
        owner: who reads it, `judge` or `planner`: Darklode's own prompts are folders below prompts/OWNER.
        folder: where its files are.
    """

    owner: str
    folder: Traversable

    @classmethod
    def find(cls, owner: str, name: str, section: str | None = None) -> PromptFolder:
        """One of Darklode's prompts by its name, or a folder by its path.

        Args:
            owner: as above.
            name: the name or the path.
            section: of the settings, whose `prompt` names it; None: the owner's.

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
        """Of the folder."""
        return self.folder.name

    def text(self, file: str) -> str:
        """A file's text, without the white space around it.

        Raises:
            SettingsError: it is missing or no text.
        """
        try:
            return self.folder.joinpath(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self.refusal(f"needs a readable file {file}: {error}") from None

    def load(self, file: str, kind: TypeAdapter[T]) -> T:
        """What a YAML file holds, in the given type.

        Raises:
            SettingsError: it is missing, no YAML, or holds something else.
        """
        try:
            return kind.validate_python(yaml.safe_load(self.text(file)))
        except (ValidationError, yaml.YAMLError) as error:
            raise self.refusal(f"cannot be used: {file}: {error}") from None

    def template(self, file: str, *, needed: tuple[str, ...], allowed: tuple[str, ...] = ()) -> str:
        """The text of a template, with its placeholders checked.

        Raises:
            SettingsError: it is missing, lacks a placeholder that it needs, holds an unknown one, or one twice.
        """
        text = self.text(file)
        names = Template(text).names
        if len({*names}) < len(names) or not {*needed} <= {*names} <= {*needed, *allowed}:
            limit_text = f" and at most {_in_braces(allowed)}" if allowed else ""
            raise self.refusal(f"is unclear: {file} must hold {_in_braces(needed)}{limit_text}, once each")
        return text

    def refusal(self, reason: str) -> SettingsError:
        """The error that says which prompt is wrong, and why."""
        return SettingsError(f"the {self.owner}'s prompt {self.name} {reason}")


def _in_braces(names: tuple[str, ...]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)
