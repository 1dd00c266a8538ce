"""A judge's prompt, loaded from a folder and validated: system text, examples, user template, labels, version."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from pydantic import Field, TypeAdapter, model_validator

from darklode.pipeline.base.prompts import PromptFolder, Template
from darklode.pipeline.base.quoting import Quoting
from darklode.schemas.section import Section

Message = dict[str, str]

_NAME_CHARACTERS = 40  # maximum length of a grade's name in the system text
_CACHED_TEXTS = 1 << 12  # quoted queries, titles and headings in the cache


@dataclass(frozen=True)
class PairText:
    """A pair's texts for the prompt; title and heading may be unknown."""

    query: str
    title: str | None
    heading: str | None
    chunk: str


class Example(Section):
    """A few-shot example in the system text."""

    query: str
    title: str | None = None
    heading: str | None = None
    chunk: str
    label: str
    reason: str

    @property
    def pair(self) -> PairText:
        """The example's texts."""
        return PairText(self.query, self.title, self.heading, self.chunk)


class LabelExample(Section):
    """Instructions for the reply's format: bare label, JSON, JSON with a rationale."""

    label: str
    json_: str = Field(alias="json")
    rationale: str


class JudgePromptHead(Section):
    """Content of prompt.yaml.

    Attributes:
        version: version of the prompt; part of the judge's id.
        domain: description of the corpus for the system text.
        labels: grade of each label.
        relevant_from: lowest grade that counts as relevant.
        answer: instructions for the reply's format.
        again: message after an unreadable reply.
    """

    version: int
    domain: str = ""
    labels: dict[str, int] = Field(min_length=2)
    relevant_from: int
    answer: LabelExample
    again: str

    @model_validator(mode="after")
    def _labels_tell_apart(self) -> JudgePromptHead:
        grades = list(self.labels.values())
        if len(set(grades)) < len(grades) or not min(grades) < self.relevant_from <= max(grades) or min(grades) < 0:
            raise ValueError("labels need distinct grades >= 0, some below relevant_from and some not")
        if any(label != other and label.startswith(other) for label in self.labels for other in self.labels):
            raise ValueError("no label may be a prefix of another")
        return self


_EXAMPLES: TypeAdapter[tuple[Example, ...] | None] = TypeAdapter(tuple[Example, ...] | None)


@dataclass(frozen=True)
class JudgePrompt:
    """A validated prompt.

    Attributes:
        name: name of its folder.
        head: content of prompt.yaml: version, labels, reply formats.
        system: template of the system message.
        user: template of the user message.
        examples: few-shot examples, in the order of the system message.
    """

    name: str
    head: JudgePromptHead
    system: str
    user: str
    examples: tuple[Example, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of prompt.yaml."""
        return tuple(self.head.labels)

    @property
    def is_graded(self) -> bool:
        """Whether there are more than two labels."""
        return len(self.head.labels) > 2

    @property
    def grades(self) -> dict[int, str]:
        """Names of the grades from `relevant_from` up, highest first; empty for a binary prompt."""
        if not self.is_graded:
            return {}
        names = {grade: self._label_name(label) for label, grade in self.head.labels.items()}
        return {grade: names[grade] for grade in sorted(names, reverse=True) if grade >= self.head.relevant_from}

    def _label_name(self, label: str) -> str:
        """Return the label if it is a word, or else its name in the system text, as in `3: made for this query. …`."""
        if not label.isdigit():
            return label
        match = re.search(rf"^{re.escape(label)}: ([^.\n]{{1,{_NAME_CHARACTERS}}})[.\n]", self.system, re.MULTILINE)
        return match[1] if match else ""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole prompt, 16 hex digits."""
        content = [
            self.head.model_dump(mode="json"),
            self.system,
            self.user,
            [example.model_dump() for example in self.examples],
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def system_text(self, answer: str) -> str:
        """Build the system message, which is the same for every pair.

        Args:
            answer: the format instruction, one of `head.answer`.
        """
        examples_text = "\n\n".join(self._example(example) for example in self.examples)
        values = {"domain": self.head.domain, "examples": examples_text, "answer": answer}
        return Template(self.system).fill(values)

    def user_text(self, pair: PairText) -> str:
        """Build the user message of a pair, with its texts quoted; lines with an unknown title or heading are left
        out.
        """
        repeated_texts = {"query": pair.query, "title": pair.title, "heading": pair.heading}
        values = {name: self._quoted_once(text) for name, text in repeated_texts.items() if text is not None}
        values["chunk"] = self.quoting.quote(pair.chunk)
        return self._user_template(pair.title is not None, pair.heading is not None).fill(values)

    @cached_property
    def quoting(self) -> Quoting:
        """Escapes the prompt's own markers in foreign text."""
        return Quoting(self.user)

    @cached_property
    def _quoted_once(self) -> Callable[[str], str]:
        """Cached quoting for texts that repeat across pairs: queries, titles, headings."""
        return lru_cache(_CACHED_TEXTS)(self.quoting.quote)

    @cached_property
    def _user_template(self) -> Callable[[bool, bool], Template]:
        """Cached function that builds the user template, given whether title and heading are known."""

        @cache
        def build_template(title: bool, heading: bool) -> Template:
            unknown = {name for name, value in (("title", title), ("heading", heading)) if not value}
            template_lines = (line for line in self.user.split("\n") if unknown.isdisjoint(Template(line).names))
            return Template("\n".join(template_lines))

        return build_template

    def messages(self, pair: PairText, answer: str) -> list[Message]:
        """Build the chat messages for a pair.

        Args:
            pair: the pair's texts.
            answer: the format instruction, one of `head.answer`.
        """
        return [
            {"role": "system", "content": self.system_text(answer)},
            {"role": "user", "content": self.user_text(pair)},
        ]

    def _example(self, example: Example) -> str:
        """Format an example for the system message."""
        return f"{self.user_text(example.pair)}\nLabel: {example.label}\nWhy: {example.reason}"


def load_prompt(name: str) -> JudgePrompt:
    """Load a built-in prompt by name, or a folder with prompt.yaml, system.md, user.md and examples.yaml.

    Raises:
        SettingsError: no such prompt, a missing or unreadable file, an unknown or missing placeholder, or an example
            with an unknown label.
    """
    folder = PromptFolder.find("judge", name)
    head = folder.load("prompt.yaml", TypeAdapter(JudgePromptHead))
    system = folder.template("system.md", needed=("examples", "answer"), allowed=("domain",))
    user = folder.template("user.md", needed=("query", "chunk"), allowed=("title", "heading"))
    if Template(user).names[0] != "query":
        raise folder.refusal("must begin with the query in user.md, so that a prefix cache serves all its chunks")
    examples = folder.load("examples.yaml", _EXAMPLES) or ()
    for example in examples:
        if example.label not in head.labels:
            raise folder.refusal(f"is wrong: an example has the label {example.label!r}, none of {(*head.labels,)}")
    return JudgePrompt(folder.name, head, system, user, examples)
