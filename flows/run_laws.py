"""run-laws: train on ever more labels of runs, measure each on the same test queries, and look for a law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from darklode.flows.adapt_encoder import base_of, pairs_step
from darklode.flows.executor import executor
from darklode.flows.fit_laws import laws_folder
from darklode.flows.reporting import reporter
from darklode.flows.runs import GENERATED, LAWS, SETTINGS, note, noted, recorded
from darklode.flows.spreading import spreading
from darklode.flows.steps import run_step
from darklode.flows.train_both_towers import topical, triplets_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.spread import Spread, here
from darklode.pipeline.base.views import views_sql
from darklode.pipeline.laws.fit import FIT, laws
from darklode.pipeline.laws.page import PAGE, page, told
from darklode.pipeline.laws.trainer import Trainer
from darklode.pipeline.train.needs import check_parts
from darklode.pipeline.train.vectors import Base
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
    made = [recorded(Run(url)) for url in runs]
    chosen = made[0].changed(settings or {})
    towers = chosen.laws.trainer == TOWERS
    check_parts(chosen.dual.method if towers else chosen.adapt.method)
    bases, run = [base_of(runs, made, encoder, chosen) for encoder in encoders], laws_folder(out)
    bases = [topical(base) for base in bases] if towers else bases
    with run.lock(), spreading(chosen.runner, run) as spread:
        note(run, {LAWS: list(runs), "encoders": list(encoders)})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        for step in steps(bases, chosen, spread):
            run_step(run, step)
        run.store.write("views.sql", views_sql(run).encode())
        text = page(run)
        run.store.write(PAGE, text)
        executor().show(run, text.decode)
    said = told(run.tables("law_verdicts"))
    for sentence in said:
        reporter().say(sentence)
    return " ".join(said)


def steps(bases: Sequence[Base], settings: Settings, spread: Spread = here) -> list[Step]:
    """The stages, in data order. An encoder more is an input more: cells of the others stand."""
    from darklode.pipeline.laws.grid import GRID, grid

    trainer, seed = _trainer(settings), settings.seed
    given = {f"{number}": one for number, one in enumerate(bases)}
    return [
        pairs_step(bases[0], settings),
        *([triplets_step(bases[0], settings)] if settings.laws.trainer == TOWERS else []),
        Step(
            GRID.reading(*trainer.reads),
            call(grid, trainer, given, settings.laws, seed=seed, spread=spread),
            lambda: _encoders(bases) | _generated(settings),
            unkeyed=("bases", "spread"),
        ),
        Step(FIT, call(laws, seed=seed)),
    ]


def _trainer(settings: Settings) -> Trainer:
    """What the cells train."""
    if settings.laws.trainer == TOWERS:
        from darklode.pipeline.laws.both_towers import BothTowers

        return BothTowers(settings.dual, settings.adapt.only("rank", "alpha", "targets"))
    from darklode.pipeline.laws.adapting import Adapting

    return Adapting(settings.adapt.but("tenant", "sources", "min_probability", "judge_holes"))


def _encoders(bases: Sequence[Base]) -> dict[str, str]:
    """What identifies the encoders, in their order."""
    return {f"encoder {number}": key_of(one.identity) for number, one in enumerate(bases, 1)}


def _generated(settings: Settings) -> dict[str, str]:
    """Identifies the sources that are folders of generated queries.

    Raises:
        SettingsError: one is neither that nor a source of the run's own.
    """
    from darklode.pipeline.train.generated import generated_in

    found = generated_in(settings.laws)
    for name, one in found.items():
        if GENERATED not in noted(one.run):
            said = f"{name} is none of {', '.join(OWN_SOURCES)}, and no folder of `darklode generate`"
            raise SettingsError(f"laws.sources: {said}")
    return {f"queries of {name}": one.content() for name, one in found.items()}
