"""Who writes queries, a file each: a kind's settings, how it is built and what it lacks here."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from darklode.schemas.generation import GenerateSettings

if TYPE_CHECKING:
    from darklode.pipeline.generate.port import QueryWriter
    from darklode.schemas.settings import Settings


class GeneratorKind(GenerateSettings):
    """Settings of one kind of writer.

    Attributes:
        COPIES: whether its queries are words of the text by nature, so that no copy is left out.
    """

    COPIES: ClassVar[bool] = False

    @abstractmethod
    def writer(self, settings: Settings) -> QueryWriter:
        """The writer.

        Args:
            settings: all of them: seed, cache, and the judge, whose servers may be asked.
        """
