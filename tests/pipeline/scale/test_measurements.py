"""Unit costs: those that come with Darklode, a user's own, and files that are none."""

import json
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.scale.growth import MIN_SIZES
from darklode.pipeline.scale.measurements import StageCosts, load_measured
from helpers.unit_costs import stage, unit_costs


def test_those_that_come_along_cover_every_job_and_can_be_fitted() -> None:
    found = load_measured()
    assert {one.job for one in found.stages} == {"build", "mine", "index"}
    names = {one.name for one in found.stages}
    assert {"chunk", "clean", "embed", "fit bm25", "search bm25", "judge llm", "triplets", "associate"} <= names
    for one in found.stages:
        assert len({point.size for point in one.points}) > MIN_SIZES, f"{one.name} has no size that was held out"
        assert one.growth.span(1e9)[0] <= one.growth.cost_at(1e9) <= one.growth.span(1e9)[1], one.name


def test_memory_is_carried_on_only_where_it_was_still_growing() -> None:
    flat, growing = (StageCosts.model_validate(stage("x", "chunks", 1.0, memory=power)) for power in (0.0, 0.5))
    assert (flat.has_constant_memory, flat.megabytes(1e9)) == (True, 100)
    assert not growing.has_constant_memory
    assert growing.megabytes(4 * 64_000) == pytest.approx(2 * growing.megabytes(64_000))
    assert growing.megabytes(1.0) == growing.megabytes(64_000), "what was measured is there in any case"
    assert flat.bytes(1e6) == pytest.approx(1e7)


def test_a_users_own_are_read(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(unit_costs(stage("chunk", "chunks", 1.0))))
    assert [one.name for one in load_measured(str(path)).stages] == ["chunk"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("{}", "day: Field required"),
        (json.dumps(unit_costs(stage("a", "miles", 1.0))), "stages.0.per: Input should be"),
        (json.dumps(unit_costs(stage("a", "chunks", -1.0))), "stages.0.points.0.seconds"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "own.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=said):
        load_measured(str(path))
