"""A TREC run file of another system."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from darklode.pipeline.retrieve.retrievers.kinds import ExternalKind
from darklode.schemas.paths import FilePath

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class RunFileKind(ExternalKind):
    """Rankings of another system in a TREC run file, by query id."""

    kind: Literal["run_file"] = "run_file"
    path: FilePath[str] = Field(
        min_length=1, description="TREC run file of another system, plain or .gz, with ids of chunks or documents."
    )

    def __call__(self, corpus: Corpus) -> Retriever:
        """Read the file's rankings of the tenant's queries."""
        from darklode.pipeline.retrieve.retrievers.run_file import RunFileRetriever

        return RunFileRetriever(self.kind, Path(self.path), corpus, self.map_documents)

    def missing(self) -> list[str]:
        """A missing file."""
        return [] if Path(self.path).is_file() else [f"there is no run file {self.path}; correct its path"]

    @property
    def identity(self) -> dict[str, Any]:
        """See `RetrieverKind`: the file's content, wherever it lies; null if it is missing."""
        if not Path(self.path).is_file():
            return self.decisive() | {"path": None}
        with Path(self.path).open("rb") as file:
            return self.decisive() | {"path": hashlib.file_digest(file, "sha256").hexdigest()}


KIND = RunFileKind
