"""The stages of a run, whichever job makes it."""

from darklode.flows.runs import Recorded
from darklode.pipeline.base.artifacts import Run, Step


def steps_of(run: Run, made: Recorded) -> list[Step]:
    """The stages that make a run, in data order."""
    if made.mined:
        from darklode.flows import mine_logs

        return mine_logs.steps(run, made.inputs["logs"], made.inputs["docs"], made.settings)
    from darklode.flows import build_benchmark

    return build_benchmark.steps(made.inputs["docs"], made.inputs["queries"], made.settings)
