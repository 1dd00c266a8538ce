"""Recorded judge: verdicts from a file (`pipeline/judge/recorded.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pyarrow.compute as pc
from pydantic import Field, PrivateAttr, model_validator

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.pipeline.judge.recorded import RecordedJudge, VerdictFile
from darklode.schemas.paths import FilePath
from darklode.schemas.section import NoRow, Share
from darklode.schemas.settings import CacheSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.chunk_texts import TenantChunks
    from darklode.pipeline.judge.port import Judge

DEFAULT_THRESHOLD = 0.5
"""Stands for a threshold where one must be a number, such as in the vote of a panel."""


class RecordedSettings(JudgeKind):
    """Verdicts that another judge gave before, from a file."""

    JUDGES_NEW_TEXTS: ClassVar[bool] = False

    kind: Literal["recorded"] = "recorded"
    # None: none is applied. A wider type than the base's is safe, because settings are frozen.
    threshold: Share | Literal["fitted"] | None = Field(  # type: ignore[assignment]
        None,
        description="Minimum probability of a relevant label. null: the recorded labels. fitted: the threshold that "
        "agrees best with judge.human_labels.",
    )
    verdicts: NoRow[FilePath[str]] = Field(
        "",
        description="File of verdicts (.csv, .tsv, .jsonl, .parquet) with the columns query_id, chunk_id or doc_id, a "
        "label, and optionally probability and tenant.",
    )
    column: str = Field("", description="Column of the labels. Empty: a usual name, such as relevance or grade.")
    relevant_from: int = Field(1, ge=1, description="Lowest grade of a relevant pair.")
    _file: VerdictFile | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _requires_verdicts(self) -> Self:
        if not self.verdicts:
            raise ValueError("kind recorded needs judge.verdicts, a file of verdicts")
        return self

    @property
    def cut(self) -> float:
        """The threshold as a number; .5 if there is none, or if it is yet to be fitted."""
        return self.threshold if isinstance(self.threshold, float) else DEFAULT_THRESHOLD

    @property
    def file(self) -> VerdictFile:
        """The file, read when it is first needed."""
        self._file = self._file or VerdictFile(self.verdicts, self.column, self.relevant_from)
        return self._file

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a verdict: the file by its content."""
        return super().identity | {"verdicts": self.file.digest}

    def builder(self, _cache_settings: CacheSettings) -> Builder:
        """One judge per tenant; its labels are the recorded ones unless a threshold of the probability is set."""
        from darklode.pipeline.judge.threshold import Thresholded

        def build(chunks: TenantChunks, threshold: float) -> Judge:
            judge = RecordedJudge(self.file, chunks)
            return judge if self.threshold is None else Thresholded(judge, threshold)

        return build

    def grades(self) -> dict[int, str]:
        """The recorded grades of relevant pairs; empty if none has a grade, or the file cannot be read."""
        try:
            values = pc.unique(self.file.rows["grade"]).drop_null().to_pylist()
        except InputError:
            return {}
        return {grade: str(grade) for grade in sorted(values) if grade >= self.relevant_from}

    def missing(self) -> list[str]:
        """None; reads the file, so that a bad one is reported before a run starts."""
        self.file.rows  # noqa: B018
        return []


KIND = RecordedSettings
