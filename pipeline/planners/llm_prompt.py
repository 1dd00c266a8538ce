"""The prompt of the planner that is a language model, read from prompts/planner and checked."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

import yaml

from pipeline.judges.quoting import REVISION, quoted
from schemas.section import Section

_FILES = ("prompt.yaml", "system.md", "user.md")
_LONGEST_ECHO = 2000


class Head(Section):
    """What prompt.yaml holds."""

    version: int
    again: str


@dataclass(frozen=True)
class PlannerPrompt:
    """System text, user template with `{query}`, and what is said after a reply that could not be read."""

    head: Head
    system: str
    user: str

    def __post_init__(self) -> None:
        if self.user.count("{query}") != 1:
            raise ValueError("user.md must hold {query} once")

    @cached_property
    def digest(self) -> str:
        """Names all that the model is told, besides the query."""
        told = json.dumps([REVISION, self.head.model_dump(), self.system, self.user])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def messages(self, query: str, unreadable: str | None = None) -> list[dict[str, str]]:
        """The messages about a query; `unreadable` is the reply before, if it is asked again."""
        turns = [("system", self.system), ("user", self.user.replace("{query}", quoted(query)))]
        if unreadable is not None:
            turns += [("assistant", quoted(unreadable)[:_LONGEST_ECHO] or "(nothing)"), ("user", self.head.again)]
        return [{"role": role, "content": content} for role, content in turns]


def planner_prompt(name: str = "default") -> PlannerPrompt:
    """One of Darklode's prompts by its name."""
    folder = files("prompts").joinpath("planner").joinpath(name)
    head, system, user = (folder.joinpath(file).read_text(encoding="utf-8") for file in _FILES)
    return PlannerPrompt(Head.model_validate(yaml.safe_load(head)), system.strip(), user.strip())
