"""run-laws: train on ever more labels of runs, measure each on the same test queries, and look for a law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from darklode.flows.executor import executor
from darklode.flows.jobs.adapt_encoder import open_base, pairs_step
from darklode.flows.jobs.fit_laws import laws_folder
from darklode.flows.jobs.train_both_towers import topical, triplets_step
from darklode.flows.prefect.progress import reporter
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import GENERATED, LAWS, SETTINGS, note, read_inputs, read_notes
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.laws.fit_stage import FIT, write_law_fits
from darklode.pipeline.laws.page import PAGE, law_sentences, page
from darklode.pipeline.laws.trainer import GridTrainer
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.schemas.laws import OWN_SOURCES, TOWERS
from darklode.schemas.settings import Settings


def run_laws(runs: Sequence[str], encoders: Sequence[str], out: str, settings: dict[str, Any] | None = None) -> str:
    """Train each cell of the grid, and fit laws to what they reach.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; settings start from those of the first.
        encoders: names among the settings' encoders, or sentence-transformers models; of several, a law of labels and
            parameters is looked for.
        out: folder or s3:// prefix of points and laws.
        settings: what differs from the first run's own settings.

    Returns:
        The verdicts.

    Raises:
        MissingPart: the method needs what is not installed.
        SettingsError: a size is more than there is, or nothing could choose a learning rate.
    """
    made = [read_inputs(Run(url)) for url in runs]
    chosen = made[0].with_overrides(settings or {})
    towers = chosen.laws.trainer == TOWERS
    check_parts(chosen.dual.method if towers else chosen.adapt.method)
    bases, run = [open_base(runs, made, encoder, chosen) for encoder in encoders], laws_folder(out)
    bases = [topical(base) for base in bases] if towers else bases
    with run.lock(), spread_over(chosen.runner, run) as spread:
        note(run, {LAWS: list(runs), "encoders": list(encoders)})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        for step in steps(bases, chosen, spread):
            run_step(run, step)
        run.store.write("views.sql", views_sql(run).encode())
        text = page(run)
        run.store.write(PAGE, text)
        executor().show(run, text.decode)
    sentences = law_sentences(run.tables("law_verdicts"))
    for sentence in sentences:
        reporter().say(sentence)
    return " ".join(sentences)


def steps(bases: Sequence[BaseEncoder], settings: Settings, spread: Spread = here) -> list[Step]:
    """The stages, in data order. An encoder more is an input more: cells of the others stand."""
    from darklode.pipeline.laws.grid_stage import GRID, grid

    trainer, seed = _trainer(settings), settings.seed
    base_by_number = {f"{number}": base for number, base in enumerate(bases)}
    return [
        pairs_step(bases[0], settings),
        *([triplets_step(bases[0], settings)] if settings.laws.trainer == TOWERS else []),
        Step(
            GRID.reading(*trainer.tables_read),
            call(grid, trainer, base_by_number, settings.laws, seed=seed, spread=spread),
            lambda: _encoders(bases) | _generated_contents(settings),
            untracked=("bases", "spread"),
        ),
        Step(FIT, call(write_law_fits, seed=seed)),
    ]


def _trainer(settings: Settings) -> GridTrainer:
    """What the cells train."""
    if settings.laws.trainer == TOWERS:
        from darklode.pipeline.laws.tower_trainer import DualTowerTrainer

        return DualTowerTrainer(settings.dual, settings.adapt.only("lora_rank", "lora_alpha", "target_modules"))
    from darklode.pipeline.laws.adapt_trainer import AdapterTrainer

    return AdapterTrainer(settings.adapt.but("tenant", "sources", "min_probability", "unjudged_budget"))


def _encoders(bases: Sequence[BaseEncoder]) -> dict[str, str]:
    """What identifies the encoders, in their order."""
    return {f"encoder {number}": key_of(base.identity) for number, base in enumerate(bases, 1)}


def _generated_contents(settings: Settings) -> dict[str, str]:
    """Identifies the sources that are folders of generated queries.

    Raises:
        SettingsError: one is neither that nor a source of the run's own.
    """
    from darklode.pipeline.train.data.generated import generated_in

    folders = generated_in(settings.laws)
    for name, folder in folders.items():
        if GENERATED not in read_notes(folder.run):
            message = f"{name} is none of {', '.join(OWN_SOURCES)}, and no folder of `darklode generate`"
            raise SettingsError(f"laws.label_sources: {message}")
    return {f"queries of {name}": folder.content() for name, folder in folders.items()}
