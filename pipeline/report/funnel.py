"""The funnel: rows into and out of each step, and the reasons for drops."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Output, Run, Stage
from darklode.schemas.tables import FUNNEL

FUNNEL_STAGE = Stage("funnel", 1, (), ("funnel",))


def funnel(run: Run, output: Output, order: Sequence[str]) -> None:
    """Write the table `funnel` from the manifests of the complete stages.

    A step has one row per reason for a drop, or one row without a reason if it dropped nothing.

    Args:
        order: the job's stages in data order; other stages follow by name.
    """
    output.write("funnel", funnel_of(run.manifests(), order))


def funnel_of(manifests: Mapping[str, Manifest], order: Sequence[str]) -> pa.Table:
    """Rows of `funnel` from the manifests of complete stages."""
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
    """Stages in the order of their job; others last, by name."""
    stage_position = {stage: number for number, stage in enumerate(order)}
    return sorted(stages, key=lambda stage: (stage_position.get(stage, len(stage_position)), stage))


def _drops(step: FunnelStep) -> list[tuple[str | None, int]]:
    return [(reason, dropped) for reason, dropped in step.dropped.items() if dropped] or [(None, 0)]
