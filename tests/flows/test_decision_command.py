"""The command that decides about held days, in the way in which the run was started."""

import sys

import pytest

from darklode.flows.decision_command import command_line, decision_command


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["mine", "--config", "my night.yaml"], "darklode mine --config 'my night.yaml'"),
        (["adapt", "nightly", "--config", "night.yaml", "--out", "x"], "darklode mine --config night.yaml"),
        (["-q"], "darklode mine"),
    ],
)
def test_the_command_is_the_one_of_this_process(
    arguments: list[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    assert command_line() == command


def test_days_are_appended_ready_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["darklode", "mine", "--config", "n.yaml"])
    days = ["2026-03-11", "a b:2026-03-12"]
    assert decision_command("--discard-day", days) == (
        "darklode mine --config n.yaml --discard-day 2026-03-11 --discard-day 'a b:2026-03-12'"
    )
