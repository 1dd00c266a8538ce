"""The stage `adaptation_judgments`: judgments that are brought to `adapt` for a finished benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from darklode.pipeline.base.artifacts import Output, Stage
from darklode.pipeline.base.artifacts.combined_tables import CombinedTables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.ingest.judgments import ingest_judgments
from darklode.pipeline.retrieve.judged_chunks import judged_chunks
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.settings import IngestSettings

JUDGMENT_TABLES = ("judgments", "judged_chunks")
ADAPTATION_JUDGMENTS_STAGE = Stage("adaptation_judgments", 1, (), JUDGMENT_TABLES)


def adaptation_judgments(
    sources: Sequence[TrainingSource], output: Output, settings: IngestSettings, *, path: str
) -> None:
    """Read judgments of a benchmark's queries, and map those of documents to chunks, as `darklode build --qrels` does.

    Args:
        sources: one benchmark.
        output: receives `judgments` and `judged_chunks`.
        settings: default tenant, maximum row length and maximum share of rejects.
        path: file or folder of judgments.

    Raises:
        ArtifactError: there are several runs, or a mined one.
        InputError, TooManyRejects: as for `ingest_judgments`.
    """
    if len(sources) != 1 or sources[0].mined:
        raise ArtifactError("--qrels needs one run, made by `darklode build`")
    run = sources[0].run
    ingest_judgments(run.tables("raw_queries", "documents", "chunks"), output, settings, path=path)
    judged_chunks(CombinedTables(run.tables("queries", "chunks"), output.current_tables("judgments")), output)
