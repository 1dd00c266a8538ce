"""A teacher and its student."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.caching import CachedQueries
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.schemas.settings import CacheSettings

if TYPE_CHECKING:
    from darklode.pipeline.towers.student import Student

STATIC = "static"
"""Value of `distill.student_model` that stands for a static student."""


@dataclass(frozen=True)
class TeacherPair:
    """The two query towers of an index.

    Attributes:
        teacher: the encoder of the index, or an adapted one.
        cache: caches its query vectors.
        model: initial model of the student; None: layers of the teacher.
        layers: number of the teacher's layers to keep; a student of another model keeps all.
        is_static: the student is a table of token vectors.
    """

    teacher: SentenceTransformersSettings
    cache: CacheSettings
    model: SentenceTransformersSettings | None
    layers: int
    is_static: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a vector of either."""
        student = self.model.encoder_id() if self.model else f"{self.layers} layers"
        student = STATIC if self.is_static else student
        return {"teacher": self.teacher.encoder_id(), "kept": self.cache.vector_dtype, "begins as": student}

    @property
    def student(self) -> SentenceTransformersSettings:
        """How the student reads queries: prompt and maximum length; a static one needs neither."""
        if self.is_static:
            return self.teacher.model_copy(update={"query_prompt": "", "max_seq_length": None, "truncate_dim": None})
        return self.model or self.teacher

    def queries(self, texts: Sequence[str]) -> Floats:
        """The teacher's unit vectors, shape (len(texts), dimensions); missing ones are encoded first."""
        return self._cached_queries(texts)

    @cached_property
    def _cached_queries(self) -> CachedQueries:
        encoder = Deferred(self.teacher, self.cache.root)
        return CachedQueries(encoder, EmbeddingCache(self.cache.root, self.cache.vector_dtype))

    def open(self, *, is_restored: bool = False) -> Student:
        """The initial student in float32; a projection depends on torch's seed.

        Args:
            is_restored: its weights are set afterwards, so that the hidden states of all tokens are not computed.
        """
        from darklode.pipeline.towers.lookup import can_look_up, replace_lower_layers
        from darklode.pipeline.towers.student import (
            Student,
            add_projection,
            first_and_last,
            keep_layers,
        )

        dimensions = self.queries(["dimensions"]).shape[1]
        if self.is_static:
            from darklode.pipeline.towers.static import open_static

            whole = load_query_tower(self.teacher.model_copy(update={"dtype": "float32"}), "cpu")
            return open_static(whole, self.student, dimensions)
        settings = self.student.model_copy(update={"dtype": "float32"})
        loaded = load_query_tower(settings, devices(settings.device)[0])
        frozen = None
        if not self.model:
            model: Any = loaded[0].auto_model
            if self.layers > 1:
                keep_layers(model, self.layers, first_and_last)
                # Those of the teacher, so that tokens that no training text has fit the layers above them.
                frozen = "embeddings"
            elif can_look_up(model):
                if not is_restored:
                    replace_lower_layers(loaded)
                keep_layers(model, 1, first_and_last)
            else:
                keep_layers(model, 1)
        return Student(add_projection(loaded, dimensions), settings, frozen)
