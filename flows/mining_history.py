"""What a mining run looks up about its earlier nights."""

from darklode.flows.runs import folder_kind, read_inputs
from darklode.pipeline.base.artifacts import Run
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
