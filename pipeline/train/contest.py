"""Methods against one another on the same queries: each trained with each seed, and asked once its choice is made."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.peak import Peak
from darklode.pipeline.train.tested import DEPTH
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import COMPARISON_LISTS

if TYPE_CHECKING:
    from darklode.pipeline.train.choice import Reached
    from darklode.pipeline.train.loop import Tell
    from darklode.pipeline.train.methods import Method
    from darklode.pipeline.train.rivals import Rival
    from darklode.pipeline.train.task import Questions, Task
    from darklode.pipeline.train.vectors import Base, Frozen
    from darklode.pipeline.train.weights import Weights

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
COMPARED = Stage("adapt_compare", 4, READS, (COMPARISON_LISTS.name,))


def compare(
    tables: Tables, output: Output, settings: AdaptSettings, base: Base, *, methods: list[str], seeds: int
) -> None:
    """Train each rival with each seed, choose as `adapt` does, and write what the choice finds for the test queries.

    One unit for each rival and seed; its facts say what was chosen, and what it took. The choice may be the base: a
    rival that is not preferred to it finds what the base does.

    Args:
        tables: those of `adaptation_pairs`.
        output: takes `comparison_lists`; its fact `asked` counts how often the test queries were asked.
        settings: of all methods.
        base: the encoder that is adapted.
        methods: their names.
        seeds: how often each is trained.

    Raises:
        ArtifactError: there is nothing to choose on, or no test query.
    """
    from darklode.pipeline.train.rivals import Words, bounds, rivals
    from darklode.pipeline.train.task import Questions, Task

    frozen = base.open(tables)
    task = Task.of(tables, frozen, same_document=settings.same_document)
    asked = Questions.of(tables, frozen, "test")
    if not len(asked):
        raise ArtifactError("no test query has a positive: nothing can be compared")
    basis, words = key_of(*(tables.content(name) for name in READS), base.identity), Words(base, frozen)
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    with output.unit("bounds", basis) as unit:
        if not unit.done:
            for name, lists in bounds(asked, frozen, words).items():
                _write(output, tenant, (name, 0), lists)
    for rival in rivals(settings, methods, words):
        for seed in range(seeds if rival.drawn else 1):
            with output.unit(f"{rival.name}, seed {seed}", key_of(basis, seed)) as unit:
                if not unit.done:
                    lists, unit.facts = _Entry(rival, seed, base, output).trained(task, asked)
                    _write(output, tenant, (rival.name, seed), lists)
    rows = output.rows(COMPARISON_LISTS.name)
    output.facts["asked"] = sum(bool(unit["facts"]) for unit in output.units.values())
    output.count(FunnelStep(COMPARED.name, "test queries", len(asked), "places in lists", rows))


@dataclass(frozen=True)
class _Entry:
    """A rival with one seed."""

    rival: Rival
    seed: int
    base: Base
    output: Output

    def trained(self, task: Task, asked: Questions) -> tuple[pa.Table, dict[str, Any]]:
        """What is found for the test queries by what is chosen, and the facts of the choice."""
        from darklode.pipeline.train.choice import folds

        began, peak, parts = time.process_time(), Peak(), folds(task, self.seed)
        method = self.method
        choice = self._by_folds(task, parts) if parts else self._by_validation(task)
        lists = self._lists(method, choice, task.frozen, asked)
        return lists, {
            "system": self.rival.name,
            "seed": self.seed,
            "chosen": f"{method.about} {choice.setting:g} × {choice.best.share:g}" if choice.best.share else "base",
            "reached": choice.best.value,
            "on_queries": choice.best.queries,
            "folds": len(parts) or None,
            "seconds": round(time.process_time() - began, 1),
            "peak_mb": peak.megabytes(),
            "trained": sum(one.size for one in choice.weights.values()),
        }

    def _lists(self, method: Method, choice: _Choice, frozen: Frozen, asked: Questions) -> pa.Table:
        share = choice.best.share
        if not share:
            return asked.ranking(frozen, asked.vectors, DEPTH)
        searched = method.searched(frozen, choice.weights, share)
        return asked.ranking(searched, method.vectors(choice.weights, share, asked), DEPTH)

    @property
    def method(self) -> Method:
        """A new one: it may keep what it found of a task."""
        return self.rival.method(self.rival.settings, self.base)

    def _by_validation(self, task: Task) -> _Choice:
        from darklode.pipeline.train.choice import most, preference, reach

        taught, method = self.rival.labels(task, self.seed), self.method
        choice: _Choice | None = None
        for setting in method.tried:
            weights = method.trained(taught, setting, self.seed, self._tell(method, setting)).best
            mine = _Choice(setting, most(reach(task, method, weights)), weights)
            if choice is None or preference(mine.best) > preference(choice.best):
                choice = mine
        assert choice is not None
        return choice

    def _by_folds(self, task: Task, parts: Sequence[Task]) -> _Choice:
        from darklode.pipeline.train.choice import best_setting, most, reach, together, whole

        found: list[list[list[Reached]]] = []
        for number, part in enumerate(parts):
            taught, method = self.rival.labels(part, self.seed), self.method
            tells = [self._tell(method, setting, f"fold {number + 1}, ") for setting in method.tried]
            each = zip(method.tried, tells, strict=True)
            found.append([reach(part, method, method.trained(taught, one, self.seed, tell).best) for one, tell in each])
        method = self.method
        bests = [most(together(of)) for of in zip(*found, strict=True)]
        number = best_setting(bests)
        taught, setting = self.rival.labels(whole(task), self.seed), method.tried[number]
        return _Choice(
            setting, bests[number], method.trained(taught, setting, self.seed, self._tell(method, setting)).best
        )

    def _tell(self, method: Method, setting: float, where: str = "") -> Tell:
        about = f"{self.rival.name}, seed {self.seed}, {where}{method.about} {setting:g}"
        return lambda step, seen: self.output.progress(step, self.rival.settings.steps, f"{about}: {seen}")


@dataclass(frozen=True)
class _Choice:
    """A setting, what its best share reaches, and its weights."""

    setting: float
    best: Reached
    weights: Weights


def _write(output: Output, tenant: str, named: tuple[str, int], lists: pa.Table) -> None:
    rows = lists.filter(pc.less_equal(lists["rank"], DEPTH))
    about = {name: pa.repeat(value, rows.num_rows) for name, value in zip(("system", "seed"), named, strict=True)}
    columns = {name: rows[name] for name in ("query_id", "rank", "text_id")}
    tenants = {"tenant": pa.repeat(tenant, rows.num_rows)}
    output.write(COMPARISON_LISTS.name, COMPARISON_LISTS.rows(tenants | about | columns))
