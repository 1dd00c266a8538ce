"""Flows whose stage fails, and how each of them ended."""

from pathlib import Path

import pyarrow as pa

from darklode.flows.jobs.job import Job
from darklode.flows.prefect.orchestration import as_flow
from darklode.flows.prefect.progress import SilentReporter, reporting
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Output, Run, Stage, Step, Tables, call
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.label_tables import QRELS

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


class Told(SilentReporter):
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

    def shaky() -> None:
        run_step(run, Step(STAGE, call(work)), SOON)

    with reporting(told):
        try:
            as_flow(Job("shaky", shaky))()
        except BaseException as error:
            raised = f"{type(error).__name__}: {error}"
    rows = run.tables("qrels").rows("qrels") if run.manifests() else 0
    return {"said": told.sentences, "worked": work.worked, "raised": raised, "rows": rows}
