"""A night that failed or was held back is told to a real socket; whoever does not answer changes nothing."""

import logging
import socket
from collections.abc import Callable, Iterator

import pytest
from prefect.client.schemas.objects import State

from darklode.flows.jobs.job import Job
from darklode.flows.prefect.notifications import ADDRESS_VARIABLE
from darklode.flows.prefect.orchestration import as_flow
from darklode.pipeline.base.errors import DarklodeError, HeldBack, InputError
from helpers.commands import Environment, server_of
from helpers.hook import SECRET, Hook, listening

pytestmark = pytest.mark.server


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with listening(monkeypatch) as hook:
        yield hook


def raising(error: Exception | None) -> Callable[[], None]:
    def body(out: str = "/srv/runs/mined") -> None:
        if error:
            raise error

    return body


def ended(environment: Environment, error: Exception | None) -> State[None]:
    """How a flow ends that raises an error, or none."""
    with server_of(environment):
        return as_flow(Job("mine-logs", raising(error)))(return_state=True)  # type: ignore[call-overload,no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (InputError("nowhere does not exist"), "failed"),
        (HeldBack("held back: 2026-03-11"), "held"),
        (ValueError("a bug"), "failed"),
    ],
    ids=["failed", "held", "a bug"],
)
def test_who_waits_is_told_once(served: Environment, hook: Hook, error: Exception, state: str) -> None:
    ended(served, error)
    ((path, told),) = hook.posted
    assert path == f"/{SECRET}"
    assert (told["flow"], told["state"]) == ("mine-logs", state)
    assert told["run"].startswith("runs/mined 20")
    assert told["message"].endswith(str(error))
    assert told["text"] == f"mine-logs {told['run']} {state}: {told['message']}"


@pytest.mark.slow
def test_a_run_that_went_well_tells_nobody(served: Environment, hook: Hook) -> None:
    assert ended(served, None).is_completed()
    assert hook.posted == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["500", "nobody", "no address", "unset"])
def test_a_hook_that_fails_changes_nothing_and_is_not_named(
    served: Environment, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        hook.status = 500
        others = {"nobody": f"http://127.0.0.1:{taken.getsockname()[1]}/{SECRET}", "no address": f"ftp:{SECRET}"}
        monkeypatch.setenv(ADDRESS_VARIABLE, others.get(fault, "" if fault == "unset" else hook.address))
        with caplog.at_level(logging.WARNING):
            state = ended(served, HeldBack("held back: 2026-03-11"))
    assert (state.name, state.message) == ("Held", "held back: 2026-03-11")
    with pytest.raises(DarklodeError):
        state.result()  # type: ignore[unused-coroutine]
    said = [record.getMessage() for record in caplog.records]
    assert not [line for line in said if SECRET in line]
    assert any("could not be reached" in line for line in said) == (fault != "unset")
