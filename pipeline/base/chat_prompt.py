"""A chat prompt: system text, quoted material, and the retry after an unreadable reply."""

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

_MAX_ECHO_CHARACTERS = 2000


class PromptHead(Section):
    """Content of prompt.yaml."""

    version: int
    again: str


@dataclass(frozen=True)
class ChatPrompt:
    """System text, user template, and the message after an unreadable reply."""

    head: PromptHead
    system: str
    user: str

    @classmethod
    def load(cls, owner: str, name: str, *needed: str) -> ChatPrompt:
        """Load a built-in prompt by name, or one from a folder.

        Args:
            owner: as in `PromptFolder`.
            name: of the prompt.
            needed: required placeholders of the user template.

        Raises:
            SettingsError: there is no such prompt, or it is invalid.
        """
        folder = PromptFolder.find(owner, name)
        head = folder.load("prompt.yaml", TypeAdapter(PromptHead))
        return cls(head, folder.text("system.md"), folder.template("user.md", needed=needed))

    def digest(self, revision: int = REVISION) -> str:
        """Hash of everything the model sees besides the quoted material; it includes the version of the quoting."""
        content = json.dumps([revision, self.head.model_dump(), self.system, self.user])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @cached_property
    def quoting(self) -> Quoting:
        """Keeps quoted material apart from the prompt's own markup."""
        return Quoting(self.user)

    def messages(self, shown: Mapping[str, str], unreadable: str | None = None) -> list[dict[str, str]]:
        """The messages for the quoted material; `unreadable` is the previous reply, for a retry."""
        quoted = self.quoting.quote
        filled = Template(self.user).fill({name: quoted(value) for name, value in shown.items()})
        turns = [("system", self.system), ("user", filled)]
        if unreadable is not None:
            turns += [
                ("assistant", quoted(unreadable)[:_MAX_ECHO_CHARACTERS] or "(nothing)"),
                ("user", self.head.again),
            ]
        return [{"role": role, "content": content} for role, content in turns]
