"""generate-queries on a whole run: what it leaves, what stands, what `adapt` makes of it, and what it refuses."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.flows.config import load_settings
from darklode.flows.jobs import build_benchmark
from darklode.flows.jobs.adapt_encoder import pairs_step
from darklode.flows.jobs.generate_queries import generate_queries
from darklode.flows.report import write_report
from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.generate.kinds.ict import InverseClozeWriter
from darklode.pipeline.generate.port import query_table
from darklode.pipeline.generate.realism import COVERAGE_MEASURE
from darklode.pipeline.prepare.split import SPLIT
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.adapted import base_for, build_to_adapt
from helpers.report_runs import figures, parsed, rows_of, text_of
from helpers.runs import put

QUICK = {
    "generate": {"kind": "ict", "max_texts": 60, "round_trip_depth": 3},
    "clean": {"language": None},
    "pool": {"retrievers": ["bm25", "character"]},
    "labels": {"training_precision": 0.0},
}


def write_words(_writer: object, texts: pa.Table, _examples: list[str], _on_progress: object) -> pa.Table:
    """Three random words of each text: queries of the length of real ones."""
    queries = []
    for text, draw in zip(texts["text"].to_pylist(), texts["draw"].to_pylist(), strict=True):
        words = list(dict.fromkeys(text.split()))
        positions = np.sort(np.random.default_rng(draw).choice(len(words), min(3, len(words)), replace=False))
        queries.append(" ".join(words[position] for position in positions))
    return query_table(queries)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build, and queries for its texts."""
    root = tmp_path_factory.mktemp("generate")
    build_to_adapt(root / "run")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(InverseClozeWriter, "write", write_words)
        generate_queries(str(root / "run"), str(root / "out"), QUICK)
    return root


def contents(folder: Path) -> dict[str, bytes]:
    found = [*(folder / "tables").rglob("*.parquet"), folder / "README.md", folder / "views.sql"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_what_is_kept_has_triplets_of_its_own_source_and_all_is_of_the_train_split(root: Path) -> None:
    tables = Run(str(root / "out")).tables()
    found = tables.sql("SELECT count(*) AS written, count(*) FILTER (kept) AS kept FROM generated_queries").to_pylist()[
        0
    ]
    assert found["written"] == 60
    assert 0 < found["kept"] < 60
    sides = tables.sql("SELECT DISTINCT source, split FROM triplets").to_pylist()
    assert sides == [{"source": "generated", "split": "train"}]
    assert tables.sql("SELECT DISTINCT split FROM queries").to_pylist() == [{"split": "train"}]
    kept = tables.sql("SELECT query_id, chunk_id FROM generated_queries WHERE kept ORDER BY query_id")
    assert kept.equals(tables.sql("SELECT query_id, positive_id AS chunk_id FROM triplets ORDER BY query_id"))
    page = (root / "out" / "README.md").read_text()
    assert all(
        title in page
        for title in ("## Outcomes", "## Document coverage by real queries", "## Similarity to real queries")
    )


def test_the_report_tells_how_they_are_like_real_ones_and_what_nobody_reached(root: Path) -> None:
    page = parsed((root / "out" / "report.html").read_bytes())
    assert "Generated queries" in text_of(page)
    assert [key for key in figures(page) if key.startswith("generated-")] == [
        "generated-outcomes",
        "generated-likeness",
        "generated-clusters",
        "generated-reached",
        "generated-never",
    ]
    assert COVERAGE_MEASURE in [row["measure"] for row in rows_of(page, "generated-likeness")]
    (reached,) = rows_of(page, "generated-reached")
    never = int(reached["not covered"])
    assert never == int(reached["documents"]) - int(reached["covered by real queries"]) > 0
    tables = Run(str(root / "out")).tables()
    (row,) = tables.sql("SELECT count(*) FILTER (NOT reached) AS never FROM generation_documents").to_pylist()
    assert row["never"] == never
    before = (root / "out" / "report.html").read_bytes()
    write_report(Run(str(root / "out")))
    assert (root / "out" / "report.html").read_bytes() == before


def test_again_it_does_nothing_and_says_the_same(root: Path) -> None:
    before = contents(root / "out")
    said = generate_queries(str(root / "run"), str(root / "out"), QUICK)
    assert said.startswith(f"{root / 'out'} holds ")
    assert contents(root / "out") == before


def test_adapt_learns_from_run_and_queries_together(root: Path) -> None:
    run, out = Run(str(root / "run")), Run(str(root / "out"))
    assert not read_run(out).is_mined
    found = Run(str(root / "pairs"))
    step = pairs_step(base_for(run, out, root=root), Settings())
    found.execute(step.plan(found), step.execute)
    rows = found.tables().sql("SELECT split, index, count(*) AS n FROM adaptation_queries GROUP BY ALL ORDER BY ALL")
    both = {(row["split"], row["index"]): row["n"] for row in rows.to_pylist()}
    assert both["train", 1] > 0, "generated queries are learned from"
    assert not {("validation", 1), ("test", 1)} & both.keys(), "and nothing is tested by one"


def test_a_build_has_them_among_its_train_queries(root: Path) -> None:
    run, out = Run(str(root / "build")), str(root / "out")
    asked = Run(str(root / "run")).tables("queries").read("queries").drop_columns("split")
    put(run, "cleaned_queries", asked.cast(TABLES["cleaned_queries"].schema))
    steps = build_benchmark.steps(".", ".", load_settings(values={"split": {"generated_queries": out}}))
    (step,) = (one for one in steps if one.stage == SPLIT)
    run.execute(step.plan(run), step.execute)
    rows = run.tables().sql("SELECT query_id, split FROM queries WHERE query_id LIKE 'generated%' ORDER BY query_id")
    kept = (
        Run(out).tables().sql("SELECT query_id, 'train' AS split FROM generated_queries WHERE kept ORDER BY query_id")
    )
    assert rows.num_rows > 0
    assert set(rows["query_id"].to_pylist()) <= set(kept["query_id"].to_pylist())
    assert set(rows["split"].to_pylist()) == {"train"}
    assert step.plan(run).is_up_to_date


def test_what_cannot_be_is_refused(root: Path) -> None:
    with pytest.raises(ArtifactError, match=r"holds a benchmark \(`darklode build`\)"):
        generate_queries(str(root / "run"), str(root / "run"), QUICK)
    with pytest.raises(SettingsError, match=r"generate\.exclude_retrievers: arctic is not in pool"):
        generate_queries(str(root / "run"), str(root / "no"), {**QUICK, "generate": {"exclude_retrievers": ["arctic"]}})
    with pytest.raises(SettingsError, match="leaves no retriever"):
        generate_queries(
            str(root / "run"), str(root / "no"), {**QUICK, "generate": {"exclude_retrievers": ["bm25", "character"]}}
        )
