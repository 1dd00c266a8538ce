"""The page beside generated queries, and the sentence at the end."""

from pathlib import Path

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.generate.card import card, summary_sentence
from darklode.pipeline.generate.outcomes import OUTCOME_STAGE
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.runs import put


def made(folder: Path) -> Run:
    run = Run(str(folder))

    documents = [{"tenant": "t", "doc_id": str(n), "title": None, "texts": 1, "reached": n < 2} for n in range(5)]
    put(run, "generation_documents", pa.Table.from_pylist(documents, TABLES["generation_documents"].schema))
    row = {
        "tenant": "t",
        "chunk_id": "c|<b>",
        "source": "ict",
        "generator_id": "g",
        "round_trip_rank": 1,
        "judged": True,
    }
    rows = [
        row | {"query_id": "1", "text": "how | <i>", "kept": True, "reason": None},
        row | {"query_id": "2", "text": None, "kept": False, "reason": "unreadable"},
    ]

    def outcome(_tables: object, output: object) -> None:
        output.write("generated_queries", pa.Table.from_pylist(rows, TABLES["generated_queries"].schema))  # type: ignore[attr-defined]

    run.execute(run.plan(Stage(OUTCOME_STAGE.name, 1, (), OUTCOME_STAGE.writes), {}), outcome)
    return run


def test_it_says_what_is_kept_and_why_others_are_not(tmp_path: Path) -> None:
    run = made(tmp_path / "out")
    page = card(run, Settings(), "runs/first").decode()
    assert "| unreadable | 1 |" in page
    assert "| t | 5 | 2 |" in page
    assert "<i>" not in page
    assert "c|<b>" not in page, "what was written is data"
    assert summary_sentence(run).endswith("holds 1 of 2 queries of t for training")
