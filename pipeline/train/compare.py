"""Methods against one another on the same queries: each trained with each seed, and asked once its choice is made."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.evaluate.measures import measured
from darklode.pipeline.train.stage import NO_VALIDATION
from darklode.pipeline.train.tested import MEASURES, QUERIES
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import COMPARISON_QUERIES
from darklode.schemas.tables import TABLES

if TYPE_CHECKING:
    from darklode.pipeline.train.rivals import Rival
    from darklode.pipeline.train.task import Questions, Task
    from darklode.pipeline.train.vectors import Base, Floats

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
COMPARED = Stage("adapt_compare", 1, READS, ("test_queries", COMPARISON_QUERIES.name))


def compare(
    tables: Tables, output: Output, settings: AdaptSettings, base: Base, *, methods: list[str], seeds: int
) -> None:
    """Train each rival with each seed, choose on validation, and write what the choice reaches on the test queries.

    One unit for each rival and seed; its facts say what was chosen, and what it took. The choice may be the base: a
    rival that validation does not prefer to it reaches what the base does.

    Args:
        tables: those of `adaptation_pairs`.
        output: takes `test_queries` and `comparison_queries`.
        settings: of all methods.
        base: the encoder that is adapted.
        methods: their names.
        seeds: how often each is trained.

    Raises:
        ArtifactError: there is no validation query, or no test query.
    """
    from darklode.pipeline.train.rivals import Words, bounds, rivals
    from darklode.pipeline.train.task import Questions, Task

    frozen = base.open(tables)
    task = Task.of(tables, frozen, same_document=settings.same_document)
    asked = Questions.of(tables, frozen, "test")
    if not len(task.validation) or not len(asked):
        raise ArtifactError(
            "no test query has a positive: nothing can be compared" if len(task.validation) else NO_VALIDATION
        )
    basis, words = key_of(*(tables.content(name) for name in READS), base.identity), Words(base, frozen)
    output.write("test_queries", tables.sql(QUERIES).cast(TABLES["test_queries"].schema))
    with output.unit("bounds", basis) as unit:
        if not unit.done:
            for name, lists in bounds(asked, frozen, words).items():
                _write(output, tables, asked, (name, 0), lists)
    for rival in rivals(settings, methods, words):
        for seed in range(seeds if rival.drawn else 1):
            with output.unit(f"{rival.name}, seed {seed}", key_of(basis, seed)) as unit:
                if not unit.done:
                    vectors, unit.facts = _trained(task, asked, rival, base, seed, output)
                    _write(output, tables, asked, (rival.name, seed), asked.ranking(frozen, vectors, 100))
    rows = output.rows(COMPARISON_QUERIES.name)
    output.count(FunnelStep(COMPARED.name, "test queries", len(asked), "values", rows))


def _trained(
    task: Task, asked: Questions, rival: Rival, base: Base, seed: int, output: Output
) -> tuple[Floats, dict[str, Any]]:
    """The test queries' vectors by what validation chooses, and the facts of the choice."""
    from darklode.pipeline.train.methods import method_of

    began, taught, method = time.process_time(), rival.labels(task, seed), method_of(rival.settings, base)
    best: tuple[float, float, int] = task.validation.reached(task.frozen, task.validation.vectors), 0.0, 0
    kept, numbers = asked.vectors, 0
    for number, setting in enumerate(method.tried):

        def tell(step: int, seen: str, at: float = setting) -> None:
            output.progress(step, rival.settings.steps, f"{rival.name}, seed {seed}, {method.about} {at:g}: {seen}")

        weights = method.trained(taught, setting, seed, tell).best
        numbers = sum(one.size for one in weights.values())
        for share in method.shares:
            reached = task.validation.reached(task.frozen, method.vectors(weights, share, task.validation))
            if reached > best[0]:
                best, kept = (reached, share, number), method.vectors(weights, share, asked)
    return kept, {
        "system": rival.name,
        "seed": seed,
        "chosen": f"{method.about} {method.tried[best[2]]:g} × {best[1]:g}" if best[1] else "base",
        "validation": best[0],
        "seconds": round(time.process_time() - began, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "trained": numbers,
    }


def _write(output: Output, tables: Tables, asked: Questions, named: tuple[str, int], lists: pa.Table) -> None:
    system, seed = named
    n, kinds = len(asked), len(MEASURES)
    values = measured([lists], asked.labels, asked.ids.to_pylist(), MEASURES)
    columns = {
        "tenant": pa.repeat(tables.read("adaptation_queries", ["tenant"])["tenant"][0], n * kinds),
        "system": pa.repeat(system, n * kinds),
        "seed": pa.array(np.full(n * kinds, seed, np.int32)),
        "query_id": asked.ids.take(pa.array(np.repeat(np.arange(n), kinds))),
        "measure": pa.array(list(MEASURES) * n),
        "value": pa.array(values.reshape(-1)),
    }
    output.write(COMPARISON_QUERIES.name, COMPARISON_QUERIES.rows(columns))
