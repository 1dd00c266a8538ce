"""The prompt of a decoder's documents: a question after the title, after the content, and at the end."""

from __future__ import annotations

from pydantic import Field, TypeAdapter

from darklode.pipeline.base.artifacts import key_of
from darklode.pipeline.base.prompts import PromptFolder
from darklode.schemas.section import Section


class DecoderPrompt(Section):
    """Content of prompt.yaml; each text ends a block of the document (ScalingNote, 3.2)."""

    version: int
    title: str = Field(min_length=1)
    content: str = Field(min_length=1)
    all: str = Field(min_length=1)

    @classmethod
    def load(cls, name: str) -> DecoderPrompt:
        """Load a built-in prompt by name, or one from a folder.

        Raises:
            SettingsError: there is no such prompt, or it is invalid.
        """
        return PromptFolder.find("towers", name, "dual").load("prompt.yaml", TypeAdapter(cls))

    def digest(self) -> str:
        """Hash of all texts."""
        return key_of(self.model_dump())
