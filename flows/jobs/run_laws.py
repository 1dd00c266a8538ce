"""run-laws: train on growing numbers of labels, evaluate on the same test queries, and fit scaling laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from darklode.flows.jobs import fit_laws
from darklode.flows.jobs.adapt_encoder import open_base, pairs_step, unopened_base, with_adapt
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.jobs.train_both_towers import topical, triplets_step
from darklode.flows.prefect.progress import reporter
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import folder_kind, output_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.laws.fit_stage import FIT_STAGE, write_law_fits
from darklode.pipeline.laws.page import PAGE, law_sentences, page
from darklode.pipeline.laws.trainer import GridTrainer
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.schemas.laws import OWN_SOURCES, TOWERS
from darklode.schemas.run_inputs import LawsInputs
from darklode.schemas.settings import Settings


def run_laws(runs: Sequence[str], encoders: Sequence[str], out: str, settings: dict[str, Any] | None = None) -> str:
    """Train each point of the grid, and fit laws to the results.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; the first one's settings are the base.
        encoders: names of encoders in the settings, or sentence-transformers models; several give a joint law of labels
            and parameters.
        out: folder or s3:// prefix of points and laws.
        settings: overrides of the first run's settings.

    Returns:
        The verdicts.

    Raises:
        MissingPart: the method needs a package that is not installed.
        SettingsError: a size exceeds the labels, or there are no queries to select a learning rate.
    """
    records = read_runs(runs)
    resolved = records[0].with_overrides(settings or {})
    resolved = with_adapt(resolved, resolved.adapt.with_head())
    towers = resolved.laws.trainer == TOWERS
    check_parts(resolved.dual.method if towers else resolved.adapt.method)
    bases, run = [open_base(records, encoder, resolved) for encoder in encoders], output_run(out, LawsInputs)
    bases = [topical(base) for base in bases] if towers else bases
    with run.lock(), spread_over(resolved.runner, run) as spread:
        write_run(run, LawsInputs(runs=list(runs), encoders=list(encoders)), resolved)
        for step in steps(bases, resolved, spread):
            run_step(run, step)
        publish(run, page(run), PAGE)
    sentences = law_sentences(run.tables("law_verdicts"))
    for sentence in sentences:
        reporter().say(sentence)
    return " ".join(sentences)


def steps(bases: Sequence[BaseEncoder], settings: Settings, spread: Spread = here) -> list[Step]:
    """The steps in data order. A further encoder is a further input: the points of the others stay up to date."""
    from darklode.pipeline.laws.grid_stage import GRID_STAGE, grid

    trainer, seed = _trainer(settings), settings.seed
    base_by_number = {f"{number}": base for number, base in enumerate(bases)}
    return [
        pairs_step(bases[0], settings),
        *([triplets_step(bases[0], settings)] if settings.laws.trainer == TOWERS else []),
        Step(
            GRID_STAGE.reading(*trainer.tables_read),
            call(grid, trainer, base_by_number, settings.laws, seed=seed, spread=spread),
            lambda: _encoders(bases) | _generated_contents(settings),
            untracked=("bases", "spread"),
        ),
        Step(FIT_STAGE, call(write_law_fits, seed=seed)),
    ]


def _trainer(settings: Settings) -> GridTrainer:
    """What is trained at each point."""
    if settings.laws.trainer == TOWERS:
        from darklode.pipeline.laws.tower_trainer import DualTowerTrainer

        return DualTowerTrainer(settings.dual, settings.adapt.only("lora_rank", "lora_alpha", "target_modules"))
    from darklode.pipeline.laws.adapt_trainer import AdapterTrainer

    return AdapterTrainer(settings.adapt.but("tenant", "sources", "unjudged_budget"))


def _encoders(bases: Sequence[BaseEncoder]) -> dict[str, str]:
    """Fingerprints of the encoders, in order."""
    return {f"encoder {number}": key_of(base.identity) for number, base in enumerate(bases, 1)}


def _generated_contents(settings: Settings) -> dict[str, str]:
    """Fingerprints of `laws.label_sources` that are folders of generated queries.

    Raises:
        SettingsError: a source is neither built in nor such a folder.
    """
    from darklode.pipeline.train.data.generated import generated_in

    folders = generated_in(settings.laws)
    for name, folder in folders.items():
        if folder_kind(folder.run) != "generated":
            known = ", ".join(OWN_SOURCES)
            raise SettingsError(f"laws.label_sources: {name} is not one of {known}, nor a folder of generated queries")
    return {f"queries of {name}": folder.content() for name, folder in folders.items()}


def _folder_steps(_run: Run, inputs: LawsInputs, settings: Settings) -> list[Step]:
    """The steps by name; points of a file are only fitted."""
    if inputs.points:
        return fit_laws.steps(inputs.points, settings.seed)
    return steps([unopened_base(encoder, settings) for encoder in inputs.encoders[:1]], settings)


JOB = Job("run-laws", run_laws, LawsInputs, _folder_steps, sections=("laws", *RUN_SECTIONS))
