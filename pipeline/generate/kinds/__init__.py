"""Kinds of query writers, one per file: settings, construction, and what is missing on this machine."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from darklode.schemas.generation import GenerateSettings

if TYPE_CHECKING:
    from darklode.pipeline.generate.port import QueryWriter
    from darklode.schemas.settings import Settings


class GeneratorKind(GenerateSettings):
    """Settings of a kind of writer, and its factory.

    Attributes:
        COPIES: its queries copy the text by design, so copies are not dropped.
    """

    COPIES: ClassVar[bool] = False

    @abstractmethod
    def writer(self, settings: Settings) -> QueryWriter:
        """Build the writer.

        Args:
            settings: all sections: seed, cache, and the judge, whose servers may be used.
        """
