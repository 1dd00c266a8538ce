"""What a mining run looks up about its earlier nights."""

from collections.abc import Mapping
from typing import Any

from darklode.flows.runs import folder_kind, read_inputs, read_settings
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.mine.history import History
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.settings import Settings


def history_of(run: Run, settings: Settings) -> History:
    """The days that the run has read, and through which day its term weights and click model were fitted."""
    return History(
        run,
        refresh_days=settings.term_weighting.refresh_days,
        late_days=settings.logs.max_late_days,
        test_from=settings.mining.test_from,
        requested_date=lambda: mining_inputs(run).refit_through,
    )


def mining_inputs(run: Run) -> MinedInputs:
    """The inputs of a mined run; empty ones before the first night."""
    inputs = read_inputs(run) if folder_kind(run) == "mined" else None
    return inputs if isinstance(inputs, MinedInputs) else MinedInputs(logs="", docs="")


def days_read(run: Run, settings: Settings) -> Mapping[str, Any]:
    """Fingerprints of the log's partitions that a mined run has read with these settings; none if they changed."""
    return history_of(run, settings).sources() if _has_same_readers(run, settings) else {}


def are_documents_read(run: Run, docs: str, settings: Settings) -> bool:
    """Whether a mined run has read these files with these settings."""
    if not _has_same_readers(run, settings):
        return False
    manifest = run.manifest(INGEST_DOCUMENTS)
    return manifest is not None and source_fingerprint(docs) in manifest.inputs.values()


def _has_same_readers(run: Run, settings: Settings) -> bool:
    """Whether a mined run was last made with these settings for reading; false if its record is damaged."""
    try:
        if folder_kind(run) != "mined" or not run.manifests():
            return False
        recorded = read_settings(run)
    except DarklodeError:  # the flow reports it
        return False
    return (recorded.logs, recorded.ingest) == (settings.logs, settings.ingest)
