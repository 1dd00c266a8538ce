"""A folder of many small files: listing, fingerprint, preflight and ingest.

    python -m benchmarks.many_files [--files 10000 100000]

Writes benchmarks/results/many_files.md and many_files.json.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.ingest.files import list_files, source_fingerprint
from darklode.pipeline.ingest.input_check import check_documents
from darklode.schemas.settings import Settings

PER_FOLDER = 1000


@dataclass(frozen=True)
class Measurement:
    """Processor seconds, user and system, of one step on a folder of so many files."""

    step: str
    files: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000])
    measurements = [result for n_files in parser.parse_args().files for result in _measured(n_files)]
    body = markdown_table(
        ["step", "files", "CPU seconds", "µs a file"],
        [[m.step, f"{m.files:,}", f"{m.seconds:.1f}", f"{m.seconds / m.files * 1e6:.0f}"] for m in measurements],
    )
    text = "Tiny Markdown files; the time of each step should grow no faster than their number."
    write(
        "many_files",
        f"# Many small files\n\n{machine()}. {text}\n\n{body}",
        {"machine": machine(), "measurements": [asdict(m) for m in measurements]},
    )


def _measured(n_files: int) -> list[Measurement]:
    settings = Settings().ingest
    with tempfile.TemporaryDirectory() as root:
        docs = Path(root, "docs")
        for number in range(n_files):
            folder = docs / f"{number // PER_FOLDER:04}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.md").write_text(f"# Page {number}\n\nThe text of page {number}.\n")
        source, run = str(docs), Run(f"{root}/run")
        steps: dict[str, Callable[[], object]] = {
            "listing": lambda: list_files(source),
            "fingerprint": lambda: source_fingerprint(source),
            "preflight": lambda: check_documents(source, settings),
            "ingest": lambda: run.execute(
                run.plan(INGEST_DOCUMENTS, {}), lambda _tables, output: ingest_documents(source, output, settings)
            ),
        }
        return [Measurement(name, n_files, _seconds(step)) for name, step in steps.items()]


def _seconds(step: Callable[[], object]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


if __name__ == "__main__":
    main()
