"""Flows whose stage fails, in a process of its own: `python shaky_stage.py FOLDER` prints how each case ended."""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
from prefect import flow

from flows.reporting import Silent, reporting
from flows.steps import Step, run_step
from pipeline.artifacts import Output, Run, Stage, Tables
from pipeline.errors import ArtifactError
from schemas.tables import QRELS

STAGE = Stage("judge", 1, (), ("qrels",))
SOON = (0.01, 0.02)
CASES: dict[str, list[BaseException]] = {
    "once": [OSError(5, "Input/output error")],
    "twice": [TimeoutError("timed out"), OSError("When reading object: AWS Error SLOW_DOWN: Please reduce your rate")],
    "too often": [OSError(5, f"number {number}") for number in range(5)],
    "an error of ours": [ArtifactError("another process is writing")],
    "a mistake": [ValueError("a mistake")],
    "no such file": [FileNotFoundError(2, "No such file or directory")],
    "nobody listens": [BrokenPipeError(32, "Broken pipe")],
    "Ctrl-C": [KeyboardInterrupt()],
}


class Told(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


class Shaky:
    """A stage of two units whose second one raises each of the given errors, one after the other, before it works."""

    def __init__(self, errors: list[BaseException]) -> None:
        self.left = list(errors)
        self.worked: list[str] = []

    def __call__(self, _tables: Tables, output: Output) -> None:
        for name in ("first", "second"):
            with output.unit(name, name) as unit:
                if not unit.done:
                    self.worked.append(name)
                    if name == "second" and self.left:
                        raise self.left.pop(0)
                    output.write("qrels", row(name))


def row(query: str) -> pa.Table:
    named = {"tenant": ["t"], "query_id": [query], "chunk_id": ["c"]}
    return QRELS.rows(named | {"relevance": [1], "source": ["judge"]})


def ended(folder: Path, errors: list[BaseException]) -> dict[str, object]:
    """Run the stage in a flow: what was said, which units were worked on, what was raised and which tables stand."""
    run, work, told, raised = Run(str(folder)), Shaky(errors), Told(), ""

    @flow(name="shaky", persist_result=False)
    def shaky() -> None:
        run_step(run, Step(STAGE, {}, work), SOON)

    with reporting(told):
        try:
            shaky()
        except BaseException as error:
            raised = f"{type(error).__name__}: {error}"
    rows = run.tables("qrels").rows("qrels") if run.manifests() else 0
    return {"said": told.sentences, "worked": work.worked, "raised": raised, "rows": rows}


if __name__ == "__main__":
    print(json.dumps({name: ended(Path(sys.argv[1]) / name, errors) for name, errors in CASES.items()}))
    sys.stdout.flush()
    os._exit(0)  # Prefect's threads still hold modules, of which DuckDB would complain at length
