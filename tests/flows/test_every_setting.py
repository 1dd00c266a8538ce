"""Every setting is drawn: a change redoes stages that receive it, among them all that read it, and no others."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from darklode.flows.config import load_settings
from darklode.flows.jobs import build_benchmark, mine_logs
from darklode.pipeline.base.artifacts import Run, Step
from darklode.schemas.section import Effect, Section
from darklode.schemas.settings import Settings
from helpers.runs import SAMPLE

ASSIGNMENTS = (
    "pool.retrievers=[bm25, ppmi]",
    "pool.depth=5",
    "relevance.ranker=judge",
    "mining.verify_share=0.2",
    "mining.test_from=2026-03-02",
)
Job = Callable[[Run, Settings], list[Step]]
Leaf = tuple[str, ...]


def build(_run: Run, settings: Settings) -> list[Step]:
    return build_benchmark.steps(str(SAMPLE), str(SAMPLE), settings)


def mine(run: Run, settings: Settings) -> list[Step]:
    days = [date(2026, 3, 1) + timedelta(number) for number in range(2)]
    return mine_logs.steps(run, str(SAMPLE), str(SAMPLE), settings, days)


@dataclass(frozen=True)
class Finished:
    """A finished run, and the settings that each of its stages read while it worked."""

    run: Run
    job: Job
    settings: Settings
    reads: dict[str, set[Leaf]]


def sections(section: Section, path: Leaf = ()) -> Iterator[tuple[Leaf, Section]]:
    """A section and those inside of it, by path."""
    yield path, section
    for name, value in section:
        if isinstance(value, Section):
            yield from sections(value, (*path, name))


@contextmanager
def spying(settings: Settings, working: list[str]) -> Iterator[dict[str, set[Leaf]]]:
    """Note which settings, of these and of copies of their sections, are read while a stage is the last that works."""
    ours = {id(section): (path, section) for path, section in sections(settings)}
    reads = defaultdict[str, set[Leaf]](set)
    plain_read, plain_copy = Section.__getattribute__, Section.model_copy

    def read(section: Section, name: str) -> Any:
        if working and id(section) in ours and name in type(section).model_fields:
            reads[working[-1]].add((*ours[id(section)][0], name))
        return plain_read(section, name)

    def copy(section: Section, **changes: Any) -> Section:
        made = plain_copy(section, **changes)
        if id(section) in ours:
            ours[id(made)] = (ours[id(section)][0], made)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Section, "__getattribute__", read)
        patch.setattr(Section, "model_copy", copy)
        yield reads


@pytest.fixture(scope="module", params=[build, mine])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("finished")
    settings = load_settings(assignments=[*ASSIGNMENTS, f"cache.root={folder / 'cache'}"])
    run, working = Run(str(folder / "run")), list[str]()
    with spying(settings, working) as reads:
        for step in request.param(run, settings):
            plan, bound = step.plan(run), replace(step, receives=step.call)
            working.append(step.stage.name)
            run.execute(plan, bound.execute)
            working.pop()
    yield Finished(run, request.param, settings, dict(reads))
    shutil.rmtree(folder)


def leaves(section: Section, path: Leaf = ()) -> Iterator[tuple[Leaf, FieldInfo]]:
    """Every setting that is no section."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), field


# Where a changed value has to be one of the user's own, or needs others beside it.
CHANGED: dict[Leaf, Any] = {
    ("evaluate", "report_to"): ["mlflow"],
    ("adapt", "learning_rates"): [1e-3],
    ("adapt", "report_to"): ["tensorboard"],
    ("adapt", "sources"): ["pooled"],
    ("adapt", "target_modules"): ["query"],
    ("dual", "learning_rates"): [1e-3],
    ("dual", "matryoshka_dims"): [8, 16],
    ("dual", "report_to"): ["tensorboard"],
    ("dual", "temperatures"): [0.1],
    ("dual", "views"): ["all"],
    ("generate", "exclude_retrievers"): ["bm25"],
    ("laws", "train_sizes"): [10],
    ("laws", "label_sources"): ["bm25"],
    ("distill", "learning_rates"): [1e-3],
    ("distill", "report_to"): ["tensorboard"],
    ("evaluate", "measures"): ["nDCG@5"],
    ("evaluate", "run_files"): ["theirs.txt"],
    ("evaluate", "systems"): ["bm25"],
    ("logs", "click_actions"): ["click", "buy"],
    ("pool", "retrievers"): ["bm25", "character"],
    ("split", "group_by"): ["user"],
    ("relevance", "retrievers"): ["ppmi"],
    ("reranker", "learning_rates"): [1e-4],
    ("bm25", "stemmer"): "german",
    ("clean", "language"): "de",
    ("logs", "time_zone"): "Europe/Berlin",
    ("mining", "test_from"): "2026-03-09",
    ("judge", "panel"): [{"kind": "embedded", "threshold": 0.4}],
    ("judge", "human_labels"): __file__,
    ("encoders",): {"one": {"kind": "openai", "model": "small"}},
    ("retrievers",): {"one": {"kind": "bm25", "k1": 2.0}},
}
NEEDS_MORE = {
    ("generate", "kind"): "another kind needs a server or a model",
    ("index", "kind"): "another kind has other keys",
    ("judge", "kind"): "another kind needs a model",
    ("judge", "panel_weights"): "needs a panel",
    ("labels", "human_overrides"): "needs human labels",
    ("term_weighting", "kind"): "another kind needs a server or a file",
}


def others(annotation: Any, value: Any) -> Iterator[Any]:
    """Values that a setting might have instead."""
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from others(member, value)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif annotation is bool:
        yield not value
    elif annotation in (int, float):
        base = value if isinstance(value, int | float) else 1
        yield from (base + 1, base / 2, base + 0.05, base - 0.05, base - 1)
    elif annotation is str:
        yield f"{value or ''}x"
    elif get_origin(annotation) is dict:
        yield {"x": 1}
    elif annotation is NoneType:
        yield None
    elif hasattr(annotation, "__origin__"):
        yield from others(annotation.__origin__, value)


def changed(settings: Settings, leaf: Leaf, field: FieldInfo) -> Settings | None:
    """The settings with another value of one of them; None where no valid one is known."""
    value: Any = settings
    for name in leaf:
        value = getattr(value, name)
    for other in [CHANGED[leaf]] if leaf in CHANGED else others(field.annotation, value):
        nested: Any = other
        for name in reversed(leaf):
            nested = {name: nested}
        dumped = settings.model_dump(mode="json")
        section = dumped
        for name in leaf[:-1]:
            section = section[name]
        section[leaf[-1]] = other
        try:
            found = Settings.model_validate(dumped)
        except ValidationError:
            continue
        if found != settings:
            return found
    return None


def wanted(finished: Finished, settings: Settings) -> list[Step]:
    return [step for step in finished.job(finished.run, settings) if step.enabled]


def redone(run: Run, steps: list[Step]) -> set[str]:
    return {step.stage.name for step in steps if not step.plan(run).is_up_to_date}


def received(step: Step) -> dict[str, Any]:
    """All that a step's function receives; a port that cannot be compared stands for its identity."""
    return {
        name: one if type(one).__eq__ is not object.__eq__ else one.identity if hasattr(one, "identity") else None
        for name, one in step.call.arguments.items()
    }


@pytest.mark.slow
def test_what_is_finished_stands(finished: Finished) -> None:
    assert redone(finished.run, wanted(finished, finished.settings)) == set()


@pytest.mark.slow
def test_a_change_redoes_exactly_the_stages_that_read_it(finished: Finished) -> None:
    run, unknown = finished.run, set[Leaf]()
    before = {step.stage.name: (step.stage, received(step)) for step in finished.job(run, finished.settings)}
    for leaf, field in leaves(finished.settings):
        settings = changed(finished.settings, leaf, field)
        if settings is None:
            unknown.add(leaf)
            continue
        steps = wanted(finished, settings)
        found = redone(run, steps)
        receiving = {step.stage.name for step in steps if (step.stage, received(step)) != before[step.stage.name]}
        assert found <= receiving, f"{leaf} redoes stages that do not receive it"
        reading = {stage for stage, read in finished.reads.items() if leaf in read and stage in before}
        if leaf == ("judge", "human_labels"):  # no row hangs on the path, but calibration on what the file holds
            assert found == {"calibrate"} & set(before)
        elif Effect.NO_ROW in field.metadata:
            assert not found, f"{leaf} changes no row"
        else:
            assert reading <= found, f"{leaf} is read by stages that it does not redo"
    assert unknown == set(NEEDS_MORE)
