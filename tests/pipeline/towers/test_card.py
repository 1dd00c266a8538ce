"""The card tells what is kept, how near the student is, how fast, and what it learned from."""

from pathlib import Path

import pytest

from darklode.pipeline.towers.card import speeds

from .conftest import Distilled


@pytest.mark.slow
def test_the_card_tells_all_of_it(distilled: Distilled) -> None:
    page = (Path(distilled.out.store.url) / "README.md").read_text()
    for title in ("Retained quality", "Agreement with the teacher", "Size and speed", "Trials", "Training history"):
        assert f"## {title}" in page
    assert "Student: 1 layers" in page
    assert "it retains" in page
    teacher, student = speeds(distilled.out).to_pylist()
    assert (teacher["tower"], student["tower"]) == ("teacher", "student")
    assert student["megabytes"] > 0
