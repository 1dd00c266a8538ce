"""A prompt to a chat model: what it is told, what is shown to it as quoted material, and how it is asked again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import TypeAdapter

from darklode.pipeline.base.prompts import PromptFolder, Template
from darklode.pipeline.base.quoting import REVISION, Quoting
from darklode.schemas.section import Section

_LONGEST_ECHO = 2000


class PromptHead(Section):
    """What prompt.yaml holds."""

    version: int
    again: str


@dataclass(frozen=True)
class ChatPrompt:
    """System text, user template, and what is said after a reply that could not be read."""

    head: PromptHead
    system: str
    user: str

    @classmethod
    def load(cls, owner: str, name: str, *needed: str) -> ChatPrompt:
        """One of Darklode's prompts by its name, or a folder's.

        Args:
            owner: who reads it, as in `PromptFolder`.
            name: the prompt.
            needed: placeholders of the user's template.

        Raises:
            SettingsError: there is no such prompt, or it cannot be used.
        """
        folder = PromptFolder.find(owner, name)
        head = folder.load("prompt.yaml", TypeAdapter(PromptHead))
        return cls(head, folder.text("system.md"), folder.template("user.md", needed=needed))

    def digest(self, revision: int = REVISION) -> str:
        """Names all that the model is told, besides what is shown, by a revision of the quoting."""
        content = json.dumps([revision, self.head.model_dump(), self.system, self.user])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @cached_property
    def quoting(self) -> Quoting:
        """Keeps what is shown apart from the prompt's own marks."""
        return Quoting(self.user)

    def messages(self, shown: Mapping[str, str], unreadable: str | None = None) -> list[dict[str, str]]:
        """The messages about what is shown; `unreadable` is the reply before, if it is asked again."""
        quoted = self.quoting.quote
        filled = Template(self.user).fill({name: quoted(value) for name, value in shown.items()})
        turns = [("system", self.system), ("user", filled)]
        if unreadable is not None:
            turns += [("assistant", quoted(unreadable)[:_LONGEST_ECHO] or "(nothing)"), ("user", self.head.again)]
        return [{"role": role, "content": content} for role, content in turns]
