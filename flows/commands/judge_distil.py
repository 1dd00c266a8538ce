"""darklode judge distil: train a small judge on the verdicts of a run's judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from darklode.flows.commands.options import ConfigOption, OutOption, RunArgument, SetOption
from darklode.flows.commands.train_reranker import BaseOption

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Run

AgreementOption = Annotated[
    float | None,
    typer.Option(
        metavar="KAPPA",
        min=-1,
        max=1,
        help="Minimum kappa with the run's judge on test queries; default: 0.6, or none where people's labels compare "
        "the two.",
    ),
]


def distil(
    run: RunArgument,
    *,
    base: BaseOption,
    out: OutOption,
    min_agreement: AgreementOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Train a small judge on a run's verdicts; exit code 3 if it agrees less."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.distil_judge import distil_judge
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.base.errors import NoLift
    from darklode.pipeline.reranker.distil.evaluation import PREDICTIONS_STAGE, require_agreement

    try:
        launch(distil_judge, reporter(), run, base, out, changed_values(config, assignments), min_agreement)
    except NoLift:
        _show_bands(Run(out))
        raise
    _show_bands(Run(out))
    facts = Run(out).manifests()[PREDICTIONS_STAGE.name].facts
    console.print(f"\n{printable(require_agreement(facts, min_agreement))}", soft_wrap=True)


def _show_bands(run: Run) -> None:
    from darklode.flows.console import show
    from darklode.pipeline.reranker.distil.comparison import cascade_choices
    from darklode.pipeline.reranker.distil.folder import BANDS_SQL, SHOWN_BANDS_SQL

    bands = run.tables("cascade_bands")
    show(bands.sql(SHOWN_BANDS_SQL), "Cascade of the distilled judge and its teacher, on test queries")
    choices = cascade_choices(bands.sql(BANDS_SQL).to_pylist())
    show(choices, "What judge.agreement leads to, on test queries that did not choose the band")
