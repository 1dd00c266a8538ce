from datetime import date

from darklode.flows.mining_history import mining_inputs
from darklode.flows.runs import update_inputs, write_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import MinedInputs


def test_inputs_are_empty_before_the_first_night(run: Run) -> None:
    assert mining_inputs(run).refit_through is None
    write_inputs(run, MinedInputs(logs="l", docs="d"))
    update_inputs(run, refit_through=date(2026, 3, 1))
    assert mining_inputs(run) == MinedInputs(logs="l", docs="d", refit_through=date(2026, 3, 1))
