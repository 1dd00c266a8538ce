"""A small run for the commands of the judge, and what they are told of a server."""

from pathlib import Path

from darklode.flows.config import load_settings
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import build_without_prefect
from helpers.fake_chat import FakeChat

KEY = "sk-this-is-a-secret"
SMALL = ["clean.keep_all=true", "pool.retrievers=[bm25, ppmi]", "pool.depth=4"]


def write_source(folder: Path) -> Path:
    """Eight documents and six queries."""
    (folder / "docs").mkdir(parents=True)
    for number in range(8):
        text = f"# Page {number}\n\nHow to reset password number {number}, rotate a key, read webhook {number}."
        (folder / "docs" / f"{number}.md").write_text(text)
    (folder / "queries.txt").write_text("".join(f"how do I reset password {number}\n" for number in range(6)))
    return folder


def judge_settings(server: FakeChat, *more: str) -> list[str]:
    """An LLM judge without probes, so that tests can count its calls; `more` may ask for probes."""
    judge = {"kind": "llm", "model": "judge", "base_url": server.url, "api_key_env": "JUDGE_KEY", "retry_timeout": 5}
    judge |= {"probe_pairs": 0}
    return [*(f"judge.{name}={value}" for name, value in judge.items()), *more]


def options(assignments: list[str]) -> list[str]:
    return [part for one in assignments for part in ("--set", one)]


def build(out: Path, source: Path, assignments: list[str]) -> Settings:
    chosen = load_settings(assignments=[*SMALL, *assignments])
    write_run(Run(str(out)), BenchmarkInputs(docs=str(source / "docs"), queries=str(source / "queries.txt")), chosen)
    build_without_prefect(str(out), source / "docs", source / "queries.txt", chosen)
    return chosen
