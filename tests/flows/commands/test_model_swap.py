"""darklode adapt model-swap, its short form, and the renamed command."""

from pathlib import Path

import pytest

from helpers.adapted import word
from helpers.commands import Call, one_line
from helpers.swapped import swapped_run


@pytest.mark.slow
def test_the_short_form_ships_or_refuses_and_the_encoder_searches(tmp_path: Path, call: Call) -> None:
    swapped_run(tmp_path)
    given = ("--from", tmp_path / "new", "--onto", tmp_path / "old", "--out", tmp_path / "out")
    shown = call("adapt", tmp_path / "run", *given, "--min-share", "0")
    assert (shown.code, shown.err) == (0, "")
    assert "of re-embedding's first 10" in shown.out
    assert "With new vectors for a share of the texts" in shown.out
    results = call("search", tmp_path / "run", f"how {word(7)}", "--encoder", tmp_path / "out")
    assert results.code == 0
    refused = call("adapt", *given, tmp_path / "run")
    one_line(refused, "Re-embedding is needed: mapped queries find", 3)
    assert not (tmp_path / "out" / "query_encoder").exists()


def test_help_and_the_old_name_lead_to_the_right_command(call: Call) -> None:
    assert "model-swap" in call("adapt", "--help").out
    one_line(call("adapt", "swap", "adapted", "--index", "runs/first"), "`adapt swap` is now `adapt preview`", 2)
    short = call("adapt", "--from", "new", "--onto", "old")
    assert (short.code, "darklode adapt model-swap [OPTIONS] RUN" in short.err) == (2, True)
