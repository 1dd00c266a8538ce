"""darklode plan-scale: a table, the same as JSON, and files of hardware that say something impossible."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from darklode.flows.cli import app
from helpers.unit_costs import hardware_file, unit_costs

SIZE = ["plan-scale", "--documents", "1e9", "--queries", "1e8"]


def asked(*words: str) -> str:
    return CliRunner().invoke(app, [*SIZE, *words], catch_exceptions=False).stdout


def test_a_person_reads_a_table_and_what_does_not_scale(tmp_path: Path) -> None:
    said = asked("--hardware", str(hardware_file(tmp_path)))
    assert "Estimated resources per stage" in said
    assert "does not scale" in said
    assert "CPU hours" in said


def test_json_has_every_stage_and_the_total_by_a_users_own_costs(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps(unit_costs()))
    found = json.loads(asked("--hardware", str(hardware_file(tmp_path)), "--unit-costs", str(own), "--json"))
    assert found["measured"] == {"day": "2026-01-01", "machine": "a machine"}
    assert [row["stage"] for row in found["stages"]] == ["chunk", "fit bm25", "search bm25", "judge llm", "associate"]
    assert found["total"]["cpu_hours"] == pytest.approx(sum(row["cpu_hours"] for row in found["stages"]))
    assert {"wall_hours", "machines_for_a_day", "gpu_hours", "tokens", "money"} <= found["total"].keys()
    assert found["notes"]
