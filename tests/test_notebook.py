"""The notebook of the documentation runs from top to bottom, and shows what it says."""

from pathlib import Path

import pytest

from helpers.runs import REPOSITORY

pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")


@pytest.mark.slow
def test_the_notebook_runs_and_its_outputs_are_those_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from helpers.notebook import execute, read

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    stored = read()
    executed = execute(read(), tmp_path)
    advice = "run: PYTHONPATH=tests python -m helpers.notebook"
    assert [cell.get("outputs") for cell in executed.cells] == [cell.get("outputs") for cell in stored.cells], advice
    tables = [
        output for cell in stored.cells for output in cell.get("outputs", []) if "text/html" in output.get("data", {})
    ]
    assert len(tables) >= 5


def test_the_guide_links_to_the_notebook() -> None:
    assert "](notebook.ipynb)" in (REPOSITORY / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
