"""The stages of a run, whichever job makes it, and the page on it."""

from collections.abc import Mapping

from darklode.flows.runs import ADAPTED, GENERATED, LAWS, SETTINGS, RunInputs, read_inputs, read_notes
from darklode.pipeline.base.artifacts import Run, Step
from darklode.schemas.settings import Settings


def steps_of(run: Run, made: RunInputs) -> list[Step]:
    """The stages that make a run, in data order."""
    if made.is_mined:
        from darklode.flows.jobs import mine_logs

        return mine_logs.steps(run, made.inputs["logs"], made.inputs["docs"], made.settings)
    from darklode.flows.jobs import build_benchmark

    return build_benchmark.steps(made.inputs["docs"], made.inputs["queries"], made.settings)


def write_report(run: Run) -> str:
    """Write the page on a run, an adapted encoder, generated queries or laws, complete or not; returns where it lies.

    Raises:
        ArtifactError: the folder holds none of them.
    """
    from darklode.pipeline.report.page import FILE, page
    from darklode.pipeline.report.source import open_source

    made = read_notes(run)
    kinds = {ADAPTED: _adapted_settings, GENERATED: _generated_settings, LAWS: _laws}
    settings, stages = next(
        (settings_of_kind for kind, settings_of_kind in kinds.items() if kind in made), _built_settings
    )(run)
    with open_source(run, settings, stages) as source:
        run.store.write(FILE, page(source))
    return f"{run.store.url}/{FILE}"


def _built_settings(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    from darklode.flows.stage_runner import stages

    made = read_inputs(run)
    return made.settings, stages(steps_of(run, made))


def _adapted_settings(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    """Of `adapt compare` and `train-towers` no stage is asked for: what stands is shown."""
    from darklode.flows.config import recorded_settings
    from darklode.flows.jobs.adapt_encoder import STAGES
    from darklode.pipeline.towers.dual.stage import TRAINED
    from darklode.pipeline.towers.stage import DISTIL
    from darklode.pipeline.train.fit.ablation import COMPARED

    has_other_stages = any(run.manifest(stage) for stage in (COMPARED, DISTIL, TRAINED))
    settings = recorded_settings(run.store.read(SETTINGS) or b"{}")
    return settings, {} if has_other_stages else {stage.name: True for stage in STAGES}


def _laws(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    """Laws of a file have no settings."""
    from darklode.flows.config import recorded_settings
    from darklode.pipeline.laws.fit_stage import FIT

    return recorded_settings(run.store.read(SETTINGS) or b"{}"), {FIT.name: True}


def _generated_settings(run: Run) -> tuple[Settings, Mapping[str, bool]]:
    from darklode.flows.jobs.generate_queries import STAGES

    return read_inputs(run).settings, {stage.name: True for stage in STAGES}
