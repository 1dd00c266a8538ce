"""The stages of a run, whichever job makes it, and the page on it."""

from collections.abc import Mapping

from darklode.flows.runs import ADAPTED, GENERATED, LAWS, SETTINGS, Recorded, noted, recorded
from darklode.pipeline.base.artifacts import Run, Step
from darklode.schemas.settings import Settings


def steps_of(run: Run, made: Recorded) -> list[Step]:
    """The stages that make a run, in data order."""
    if made.mined:
        from darklode.flows import mine_logs

        return mine_logs.steps(run, made.inputs["logs"], made.inputs["docs"], made.settings)
    from darklode.flows import build_benchmark

    return build_benchmark.steps(made.inputs["docs"], made.inputs["queries"], made.settings)


def write_report(run: Run) -> str:
    """Write the page on a run, an adapted encoder, generated queries or laws, complete or not; returns where it lies.

    Raises:
        ArtifactError: the folder holds none of them.
    """
    from darklode.pipeline.report.page import FILE, page
    from darklode.pipeline.report.source import source

    made = noted(run)
    kinds = {ADAPTED: _adapted, GENERATED: _generated, LAWS: _laws}
    settings, stages = next((of for kind, of in kinds.items() if kind in made), _made)(run)
    with source(run, settings, stages) as given:
        run.store.write(FILE, page(given))
    return f"{run.store.url}/{FILE}"


def _made(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    from darklode.flows.steps import stages

    made = recorded(run)
    return made.settings, stages(steps_of(run, made))


def _adapted(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    """Of `adapt compare` and `train-towers` no stage is asked for: what stands is shown."""
    from darklode.flows.adapt_encoder import STAGES
    from darklode.flows.config import recorded_settings
    from darklode.pipeline.towers.dual.stage import TRAINED
    from darklode.pipeline.towers.stage import DISTIL
    from darklode.pipeline.train.contest import COMPARED

    others = any(run.manifest(stage) for stage in (COMPARED, DISTIL, TRAINED))
    settings = recorded_settings(run.store.read(SETTINGS) or b"{}")
    return settings, {} if others else {stage.name: True for stage in STAGES}


def _laws(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    """Laws of a file have no settings."""
    from darklode.flows.config import recorded_settings
    from darklode.pipeline.laws.fit import FIT

    return recorded_settings(run.store.read(SETTINGS) or b"{}"), {FIT.name: True}


def _generated(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    from darklode.flows.generate_queries import STAGES

    return recorded(run).settings, {stage.name: True for stage in STAGES}
