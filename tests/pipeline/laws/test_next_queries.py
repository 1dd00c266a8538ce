"""The next batch: clusters without a label, then disputed ones; nothing near to what is labelled or held out."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.laws.next_queries import DISPUTED_REASON, NEW_CLUSTER_REASON, next_queries
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.tables import TABLES
from helpers.planned import TENANT, built
from helpers.runs import execute, put, read


def batch(folder: Path, size: int, files: list[dict[str, object]], run: Run | None = None) -> tuple[Run, int]:
    out, found = Run(str(folder / "laws")), list[int]()
    put(out, "raw_queries", pa.Table.from_pylist(files, schema=TABLES["raw_queries"].schema))
    sources = [TrainingSource(run, 0, mined=False, text_characters=100)] if run else []
    execute(
        out,
        Stage("law_plan", 1, ("raw_queries",), ("next_queries",)),
        lambda tables, output: found.append(next_queries(tables, output, sources, tenant=TENANT, size=size, seed=0)),
    )
    return out, found[0]


@pytest.fixture
def of_run(tmp_path: Path) -> Run:
    return built(tmp_path / "run")


def test_clusters_without_labels_come_first_and_then_the_disputed_ones(tmp_path: Path, of_run: Run) -> None:
    out, candidates = batch(tmp_path, 9, [], of_run)
    rows = read(out, "next_queries")
    assert candidates == len(rows) == 4
    assert [row["query_id"] for row in rows][:2] == ["left2", "left3"], "without a label, the most asked first"
    assert [row["reason"] for row in rows][:2] == [NEW_CLUSTER_REASON, NEW_CLUSTER_REASON]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert "copied" not in {row["query_id"] for row in rows}, "it is near to a labelled one"


def test_disagreement_is_that_of_the_clusters_own_queries(
    tmp_path: Path, of_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from darklode.pipeline.laws import next_queries as module

    monkeypatch.setattr(module, "n_clusters", lambda _n, _settings: 4)
    out, _ = batch(tmp_path, 9, [], of_run)
    rows = {row["query_id"]: row for row in read(out, "next_queries")}
    assert (rows["left1"]["disagreement"], rows["left1"]["reason"]) == (1.0, DISPUTED_REASON)
    assert rows["left0"]["disagreement"] == 0.0
    assert rows["left0"]["cluster_labels"]
    assert rows["left2"]["disagreement"] is None
    assert rows["left2"]["rank"] == 1
    assert rows["left1"]["rank"] < rows["left0"]["rank"]


def test_queries_of_files_are_chosen_from_and_each_text_once(tmp_path: Path, of_run: Run) -> None:
    texts = ("calendar sync broken", "Calendar sync broken", "password reset email orange", "gpu driver crash")
    files = [
        {"tenant": TENANT, "query_id": f"f{n}", "text": text, "timestamp": None, "count": 1}
        for n, text in enumerate(texts)
    ]
    out, candidates = batch(tmp_path, 3, files, of_run)
    rows = read(out, "next_queries")
    assert candidates == 6
    assert len(rows) == 3
    funnel = out.manifests()["law_plan"].funnel[0]
    assert (funnel.rows_in, funnel.rows_out) == (9, 3)
    assert funnel.dropped == {"near to a labelled or held-out query, or said twice": 3, "left for later": 3}
    assert "f2" not in {row["query_id"] for row in rows}, "it is a held-out query"


def test_without_runs_files_are_all_there_is(tmp_path: Path) -> None:
    files = [{"tenant": TENANT, "query_id": "a", "text": "calendar sync", "timestamp": None, "count": 2}]
    out, candidates = batch(tmp_path, 3, files)
    assert (candidates, [row["count"] for row in read(out, "next_queries")]) == (1, [2])
