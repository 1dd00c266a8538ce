"""A small stage that works in units, for tests that stop it on the way; a second process can run it too."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Output, Run, Stage, Tables
from darklode.schemas.label_tables import QRELS
from helpers.runs import PYTHONPATH

STAGE = Stage("judge", 1, (), ("qrels",))
UNITS = {f"u{number}": f"basis {number}" for number in range(5)}


def qrels(query: str, n: int = 3) -> pa.Table:
    ids = [f"c{number}" for number in range(n)]
    named = {"tenant": ["t"] * n, "query_id": [query] * n, "chunk_id": ids}
    return QRELS.rows(named | {"relevance": range(n), "source": ["judge"] * n})


def nothing() -> None:
    """Go on."""


def fail() -> None:
    raise RuntimeError("stopped")


def build(
    url: str, units: Mapping[str, str] = UNITS, stop_at: str = "", stop: Callable[[], None] = nothing
) -> list[str]:
    """Run the stage, two parts of qrels and a reject per unit; return the units whose work was done."""
    worked: list[str] = []

    def work(_tables: Tables, output: Output) -> None:
        for name, basis in units.items():
            with output.unit(name, basis) as unit:
                if not unit.done:
                    worked.append(name)
                    unit.facts["worked on"] = basis
                    output.write("qrels", qrels(f"{basis} a"))
                    if name == stop_at:
                        stop()
                    output.write("qrels", qrels(f"{basis} b", 5))
                    output.reject("judge", "qrels", {"id": [basis], "reason": ["unreadable"]})
            output.facts[name] = unit.facts["worked on"]
        output.count(FunnelStep("judge", "units", len(units), "rows", sum(part.rows for part in output.parts["qrels"])))

    run = Run(url)
    run.execute(run.plan(STAGE, {}), work)
    return worked


def state(run: Run) -> tuple[dict[str, bytes | None], list[dict[str, object]]]:
    """All part files with their bytes, and the manifests without what the clock says."""
    names = [name for table in run.store.folders("tables") for name in run.store.sizes(f"tables/{table}")]
    return {name: run.store.read(name) for name in sorted(names)}, [timeless(m) for m in run.manifests().values()]


def timeless(manifest: Manifest) -> dict[str, object]:
    return {key: value for key, value in asdict(manifest).items() if key not in {"seconds", "finished"}}


def killed(code: str, *arguments: str) -> None:
    """Run code in a process that ends itself with `kill()`: no handler, no `finally`, no buffer is flushed."""
    head = f"import os, signal, sys\ndef kill(*_): os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    ended = subprocess.run(
        [sys.executable, "-c", head + code, *arguments], env=os.environ | {"PYTHONPATH": PYTHONPATH}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
