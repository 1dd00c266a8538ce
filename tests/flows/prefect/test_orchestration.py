"""A stage that a network file system or S3 lets down is tried again; what will not pass by itself is not."""

from typing import Any

import pytest

from darklode.flows.stage_runner import RETRY_SECONDS
from helpers import shaky_stage
from helpers.commands import Environment, server_of

pytestmark = pytest.mark.server

Ended = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ended(served: Environment, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """How each case of `shaky_stage` ended, on a real server."""
    folder = tmp_path_factory.mktemp("shaky")
    with server_of(served):
        return {name: shaky_stage.ended(folder / name, errors) for name, errors in shaky_stage.CASES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["once", "twice"])
def test_what_may_pass_is_tried_again_and_finished_units_are_kept(ended: Ended, case: str) -> None:
    errors = shaky_stage.CASES[case]
    assert ended[case] == {
        "said": [f"judge: {error}; retrying" for error in errors],
        "worked": ["first", "second", *["second"] * len(errors)],
        "raised": "",
        "rows": 2,
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", ["an error of ours", "a mistake", "no such file", "nobody listens", "Ctrl-C"])
def test_what_will_not_pass_is_raised_at_once(ended: Ended, case: str) -> None:
    (error,) = shaky_stage.CASES[case]
    assert ended[case] == {
        "said": [],
        "worked": ["first", "second"],
        "raised": f"{type(error).__name__}: {error}",
        "rows": 0,
    }


@pytest.mark.slow
def test_what_does_not_pass_in_the_end_is_raised(ended: Ended) -> None:
    assert ended["too often"]["raised"] == "OSError: [Errno 5] number 2"
    assert ended["too often"]["worked"] == ["first", "second", "second", "second"]
    assert len(ended["too often"]["said"]) == len(shaky_stage.SOON) == len(RETRY_SECONDS) == 2
