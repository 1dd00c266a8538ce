from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Step, Tables, call
from darklode.schemas.section import Bound, NoRow, Section

STAGE = Stage("work", 1, (), ())


class Sizes(Section):
    size: int = 1
    speed: NoRow[int] = 2
    share: Bound[float] = 0.5


@dataclass(frozen=True)
class Port:
    name: str
    place: str = "here"

    @property
    def identity(self) -> dict[str, str]:
        return {"port": self.name}


def work(
    _tables: object,
    _output: Output,
    sizes: Sizes,
    port: Port | None = None,
    *,
    seed: int = 13,
    day: date | None = None,
) -> None:
    """A stage's function."""


def settings(run: Run, *arguments: Any, **named: Any) -> dict[str, Any]:
    return Step(STAGE, call(work, *arguments, **named)).plan(run).settings


def test_the_fingerprint_is_made_of_what_the_function_receives(run: Run) -> None:
    assert settings(run, Sizes()) == {"size": 1, "share": 0.5}
    assert settings(run, Sizes().but("share"), Port("a"), seed=1) == {"size": 1, "port": "a", "seed": 1}
    assert settings(run, Sizes(), day=date(2026, 3, 1))["day"] == "2026-03-01"
    assert settings(run, Sizes(), day=None)["day"] is None


def test_ports_with_names_stand_under_them(run: Run) -> None:
    def searched(_tables: Tables, _output: Output, retrievers: dict[str, Port]) -> None:
        """A stage's function."""

    plan = Step(STAGE, call(searched, {"a": Port("x"), "b": Port("y", "there")})).plan(run)
    assert plan.settings == {"retrievers": {"a": {"port": "x"}, "b": {"port": "y"}}}


def test_what_is_not_received_cannot_be_read(run: Run) -> None:
    def greedy(_tables: Tables, _output: Output, sizes: Sizes) -> None:
        assert sizes.size == 1
        _ = sizes.share

    step = Step(STAGE, call(greedy, Sizes().only("size")))
    with pytest.raises(AttributeError, match="share"):
        run.execute(step.plan(run), step.execute)


def test_two_arguments_may_not_give_a_name_two_values(run: Run) -> None:
    def double(_tables: Tables, _output: Output, one: Sizes, other: Sizes) -> None:
        """A stage's function."""

    assert Step(STAGE, call(double, Sizes(), Sizes(speed=3))).plan(run).settings == {"size": 1, "share": 0.5}
    with pytest.raises(ValueError, match=r"double: two arguments set size$"):
        Step(STAGE, call(double, Sizes(), Sizes(size=2))).plan(run)


def test_a_call_has_to_fit_the_function() -> None:
    with pytest.raises(TypeError, match="sizes"):
        call(work, seed=1)  # type: ignore[call-arg]


def test_what_is_learned_is_looked_up_when_it_is_planned(run: Run) -> None:
    learned = {"seed": 1}
    step = Step(STAGE, lambda: call(work, Sizes(), seed=learned["seed"]), untracked=())
    run.execute(step.plan(run), step.execute)
    assert step.plan(run).is_up_to_date
    learned["seed"] = 2
    assert step.plan(run).reason == "seed: 1 → 2"


def test_what_inputs_stand_for_is_in_no_settings(run: Run) -> None:
    step = Step(STAGE, call(work, Sizes(), day=date(2026, 3, 1)), lambda: {"the days": "abc"}, untracked=("day",))
    plan = step.plan(run)
    assert "day" not in plan.settings
    assert plan.inputs == {"the days": "abc"}


def test_a_source_is_read_in_the_tables_place(run: Run, tmp_path: Path) -> None:
    seen: list[object] = []

    def reading(source: str, _output: Output) -> None:
        seen.append(source)

    step = Step(STAGE, call(reading), source=str(tmp_path))
    run.execute(step.plan(run), step.execute)
    assert seen == [str(tmp_path)]


def test_a_bound_lets_the_stage_run_again_and_keeps_its_units(run: Run) -> None:
    done: list[bool] = []

    def in_units(_tables: Tables, output: Output, _sizes: Sizes) -> None:
        with output.unit("one", "basis") as unit:
            done.append(unit.done)

    for share, size in ((0.5, 1), (0.1, 1), (0.1, 2)):
        step = Step(STAGE, call(in_units, Sizes(share=share, size=size)))
        plan = step.plan(run)
        assert not plan.is_up_to_date
        run.execute(plan, step.execute)
    assert done == [False, True, False]
