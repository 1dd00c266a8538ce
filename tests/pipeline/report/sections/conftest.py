import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.report_runs import random_run


@pytest.fixture(params=range(3))
def chance_run(request: pytest.FixtureRequest, run: Run) -> Run:
    """A run by chance, one for each seed."""
    return random_run(run.store.url, request.param)
