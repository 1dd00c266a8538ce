"""What a decoder is asked within a document: after its title, after its content, and at the end of all."""

from __future__ import annotations

from pydantic import Field, TypeAdapter

from darklode.pipeline.base.artifacts import key_of
from darklode.pipeline.base.prompts import PromptFolder
from darklode.schemas.section import Section


class DecoderPrompt(Section):
    """What prompt.yaml holds: each text ends a block of the document (ScalingNote, 3.2)."""

    version: int
    title: str = Field(min_length=1)
    content: str = Field(min_length=1)
    all: str = Field(min_length=1)

    @classmethod
    def load(cls, name: str) -> DecoderPrompt:
        """One of Darklode's prompts by its name, or a folder's.

        Raises:
            SettingsError: there is no such prompt, or it cannot be used.
        """
        return PromptFolder.find("towers", name, "dual").load("prompt.yaml", TypeAdapter(cls))

    def digest(self) -> str:
        """Names all that is asked."""
        return key_of(self.model_dump())
