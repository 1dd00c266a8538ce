import re

import pytest

from helpers.commands import Call, Environment


@pytest.mark.server
def test_doctor_on_a_healthy_machine(call: Call, monkeypatch: pytest.MonkeyPatch, served: Environment) -> None:
    monkeypatch.setenv("PREFECT_API_URL", served["PREFECT_API_URL"])
    shown = call("doctor")
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"^prefect +ok +3\.8", shown.out, re.M)
    assert re.search(r"^prefect server +ok +PREFECT_API_URL answers", shown.out, re.M)
    assert re.search(r"^preset embedded +ok +judge embedded", shown.out, re.M)


def test_doctor_finds_a_server_that_does_not_answer(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    shown = call("doctor")
    assert shown.code == 1
    assert re.search(r"^prefect server +missing +PREFECT_API_URL does not answer", shown.out, re.M)
