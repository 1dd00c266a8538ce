"""darklode list: list the runs below a folder or prefix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from darklode.flows.commands.options import JsonOption, application
from darklode.flows.output import answering
from darklode.flows.runs import folder_kind
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.errors import DarklodeError, InputError
from darklode.schemas.folder_kinds import INPUTS, RUN_KINDS

app = application()

RUN_COLUMNS = {"run": False, "kind": False, "state": False, "stages": True, "MB": True, "finished": False}
LAST_STAGE = "funnel"
"""The last stage of benchmarks and mined runs."""
MAX_DEPTH = 8
"""Maximum depth of nested folders that are searched."""


@app.command(name="list", epilog="Example: darklode list runs")
def list_(
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Folder or s3://bucket/prefix to search.")] = ".",
    as_json: JsonOption = False,
) -> None:
    """List the runs below a folder with kind, state, size and date."""
    store = Store(root)
    if store.local is not None and not store.local.is_dir():
        raise InputError(f"{store.url} is not a folder; give a folder that contains runs")
    run_rows = [describe_run(Run(f"{store.url}/{name}".rstrip("/")), name or ".") for name in runs_below(store)]
    with answering(as_json) as answer:
        answer.rows(
            "runs",
            sorted(run_rows, key=lambda row: row["run"]),
            RUN_COLUMNS,
            f"{len(run_rows):,} runs below {store.url}",
        )


def runs_below(store: Store, folder: str = "", depth: int = MAX_DEPTH) -> Iterator[str]:
    """Paths of the runs below the root; runs inside a run are not searched for."""
    if Run(f"{store.url}/{folder}".rstrip("/")).store.read_object(INPUTS):
        yield folder
        return
    for name in store.folders(folder) if depth else ():
        if not name.startswith("."):
            yield from runs_below(store, f"{folder}/{name}".lstrip("/"), depth - 1)


def describe_run(run: Run, name: str) -> dict[str, Any]:
    """A run's row; the state of an unreadable run is `damaged`."""
    size = sum(run.store.sizes("", recursive=True).values())
    kind = folder_kind(run)
    row = {"run": name, "kind": kind}
    try:
        manifests = run.manifests()
        state = _state(run, kind, set(manifests))
    except DarklodeError:
        return row | {"state": "damaged", "stages": None, "MB": round(size / 1e6, 1), "finished": None}
    finished = max((manifest.finished for manifest in manifests.values()), default=None)
    return row | {"state": state, "stages": len(manifests), "MB": round(size / 1e6, 1), "finished": finished}


def _state(run: Run, kind: str | None, complete: set[str]) -> str:
    """Whether all stages are complete; only other kinds than runs need their job, which is slow to import."""
    if kind is None:
        return "earlier version"
    if kind in RUN_KINDS:
        return "complete" if LAST_STAGE in complete else "incomplete"
    from darklode.flows.jobs.registry import stages_of

    return "complete" if stages_of(run) <= complete else "incomplete"
