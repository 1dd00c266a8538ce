"""A judge's prompt, read from a folder and checked: system text, examples, user template, labels, version."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml
from pydantic import Field, ValidationError, model_validator

from pipeline.errors import SettingsError
from pipeline.judges.quoting import quoted
from schemas.section import Section

Message = dict[str, str]

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FIELDS = ("query", "title", "heading", "chunk")


@dataclass(frozen=True)
class Asked:
    """One pair as the prompt shows it; title and heading may be unknown."""

    query: str
    title: str | None
    heading: str | None
    chunk: str


class Example(Section):
    """A pair with its label, shown in the system text."""

    query: str
    title: str | None = None
    heading: str | None = None
    chunk: str
    label: str
    reason: str


class Answer(Section):
    """How the reply is to look: the bare label, JSON, JSON with a reason."""

    label: str
    json_: str = Field(alias="json")
    rationale: str


class Head(Section):
    """What prompt.yaml holds."""

    version: int
    domain: str = ""
    labels: dict[str, int] = Field(min_length=2)
    relevant_from: int
    answer: Answer
    again: str

    @model_validator(mode="after")
    def _labels_tell_apart(self) -> Head:
        grades = list(self.labels.values())
        if len(set(grades)) < len(grades) or not min(grades) < self.relevant_from <= max(grades) or min(grades) < 0:
            raise ValueError("labels need different grades, from 0, some of them below relevant_from and some not")
        if any(one != other and one.startswith(other) for one in self.labels for other in self.labels):
            raise ValueError("no label may begin with another one")
        return self


@dataclass(frozen=True)
class Prompt:
    """A checked prompt.

    Attributes:
        name: of its folder.
        head: version, labels, forms of the answer.
        system: the system text's template.
        user: the user text's template.
        examples: in the order shown.
    """

    name: str
    head: Head
    system: str
    user: str
    examples: tuple[Example, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The answers it asks for, in the order of prompt.yaml."""
        return tuple(self.head.labels)

    @property
    def graded(self) -> bool:
        """Whether there are more grades than relevant and not relevant."""
        return len(self.head.labels) > 2

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that it says, 16 hex digits."""
        said = [self.head.model_dump(mode="json"), self.system, self.user, [one.model_dump() for one in self.examples]]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def system_text(self, answer: str) -> str:
        """The system message, the same for every pair.

        Args:
            answer: how the reply is to look, one of `head.answer`.
        """
        shown = "\n\n".join(self._example(example) for example in self.examples)
        values = {"domain": self.head.domain, "examples": shown, "answer": answer}
        return _filled(_PLACEHOLDER.split(self.system), values)

    def user_text(self, pair: Asked) -> str:
        """The pair, quoted; a line whose placeholder is unknown is left out."""
        texts = {"query": pair.query, "title": pair.title, "heading": pair.heading, "chunk": pair.chunk}
        values = {name: quoted(text) for name, text in texts.items() if text is not None}
        lines = [_filled(parts, values) for parts in self._user_lines if values.keys() >= {*parts[1::2]}]
        return "\n".join(lines)

    @cached_property
    def _user_lines(self) -> list[list[str]]:
        """Each line of the user template, split into literal text and names of placeholders, in turns."""
        return [_PLACEHOLDER.split(line) for line in self.user.split("\n")]

    def messages(self, pair: Asked, answer: str) -> list[Message]:
        """What a chat model is sent for a pair."""
        return [
            {"role": "system", "content": self.system_text(answer)},
            {"role": "user", "content": self.user_text(pair)},
        ]

    def _example(self, example: Example) -> str:
        pair = Asked(example.query, example.title, example.heading, example.chunk)
        return f"{self.user_text(pair)}\nLabel: {example.label}\nWhy: {example.reason}"


def load_prompt(name: str) -> Prompt:
    """One of Darklode's prompts by its name, or a folder with prompt.yaml, system.md, user.md and examples.yaml.

    Raises:
        SettingsError: no such prompt, a file that is missing or cannot be read, an unknown or missing placeholder, an
            example whose label is none.
    """
    folder = _folder(name)
    texts = {file: _read(folder, file) for file in ("prompt.yaml", "system.md", "user.md", "examples.yaml")}
    try:
        head = Head.model_validate(yaml.safe_load(texts["prompt.yaml"]))
        examples = tuple(Example.model_validate(one) for one in yaml.safe_load(texts["examples.yaml"]) or [])
    except (ValidationError, yaml.YAMLError, TypeError) as error:
        raise SettingsError(f"the judge's prompt {name} cannot be used: {error}") from None
    prompt = Prompt(folder.name, head, texts["system.md"].strip(), texts["user.md"].strip(), examples)
    _check(prompt)
    return prompt


def _folder(name: str) -> Traversable:
    own = files("prompts").joinpath("judge")
    if "/" not in name and own.joinpath(name).joinpath("prompt.yaml").is_file():
        return own.joinpath(name)
    if Path(name).is_dir():
        return Path(name).resolve()
    known = ", ".join(sorted(one.name for one in own.iterdir() if one.is_dir()))
    raise SettingsError(f"judge.prompt: there is no prompt {name}; give the path of a folder, or one of {known}")


def _read(folder: Traversable, file: str) -> str:
    try:
        return folder.joinpath(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the judge's prompt {folder.name} needs a readable file {file}: {error}") from None


def _check(prompt: Prompt) -> None:
    where = f"the judge's prompt {prompt.name}"
    system, user = _PLACEHOLDER.findall(prompt.system), _PLACEHOLDER.findall(prompt.user)
    if sorted(system) not in (["answer", "examples"], ["answer", "domain", "examples"]):
        raise SettingsError(f"{where}: system.md must hold {{examples}}, {{answer}} and at most {{domain}}, once each")
    if len(set(user)) < len(user) or not {"query", "chunk"} <= set(user) <= {*_FIELDS}:
        raise SettingsError(f"{where}: user.md must hold {{query}}, {{chunk}} and at most {{title}}, {{heading}}, once")
    if user[0] != "query":
        raise SettingsError(f"{where}: user.md must begin with the query, so that a prefix cache serves all its chunks")
    for example in prompt.examples:
        if example.label not in prompt.labels:
            raise SettingsError(f"{where}: an example has the label {example.label!r}, none of {prompt.labels}")


def _filled(parts: Sequence[str], values: Mapping[str, str]) -> str:
    """A split template, every second part replaced: in one pass, so that no value is read as a template."""
    return "".join(values[part] if odd % 2 else part for odd, part in enumerate(parts))
