"""The funnel: what came into each step of a build, what left it, and why the rest did not."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Output, Run, Stage
from darklode.schemas.tables import FUNNEL

FUNNEL_STAGE = Stage("funnel", 1, (), ("funnel",))


def funnel(run: Run, output: Output, order: Sequence[str]) -> None:
    """Write the steps that the complete stages counted, in the order of the job; other stages follow by name.

    A step has one row per reason for which it dropped rows, or one row without a reason if it dropped none.

    Args:
        run: has the stages.
        output: takes `funnel`.
        order: the job's stages, in data order.
    """
    output.write("funnel", funnel_of(run.manifests(), order))


def funnel_of(manifests: Mapping[str, Manifest], order: Sequence[str]) -> pa.Table:
    """The funnel that some complete stages counted, as rows of `funnel`."""
    steps = [step for stage in in_data_order(manifests, order) for step in manifests[stage].funnel]
    rows = [(position, step, *drop) for position, step in enumerate(steps) for drop in _drops(step)]
    columns = {
        "position": [position for position, *_ in rows],
        "reason": [reason for *_, reason, _ in rows],
        "dropped": [dropped for *_, dropped in rows],
    }
    for name in ("step", "unit_in", "rows_in", "unit_out", "rows_out"):
        columns[name] = [getattr(step, name) for _, step, *_ in rows]
    return FUNNEL.rows(dict(columns))


def in_data_order(stages: Iterable[str], order: Sequence[str]) -> list[str]:
    """The stages in the order of their job; those that are no part of it come last, by name."""
    stage_position = {stage: number for number, stage in enumerate(order)}
    return sorted(stages, key=lambda stage: (stage_position.get(stage, len(stage_position)), stage))


def _drops(step: FunnelStep) -> list[tuple[str | None, int]]:
    return [(reason, dropped) for reason, dropped in step.dropped.items() if dropped] or [(None, 0)]
