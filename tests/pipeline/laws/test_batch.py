"""The next batch: drawn from what nobody labelled; nothing near to what is labelled or held out."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.laws.batch import next_queries
from darklode.pipeline.train.sources import Source
from darklode.schemas.tables import TABLES
from helpers.planned import TENANT, built
from helpers.runs import execute, put, read


def batch(
    folder: Path, size: int, files: list[dict[str, object]], run: Run | None = None, seed: int = 0
) -> tuple[Run, int]:
    out, found = Run(str(folder / "laws")), list[int]()
    put(out, "raw_queries", pa.Table.from_pylist(files, schema=TABLES["raw_queries"].schema))
    sources = [Source(run, 0, mined=False, text_characters=100)] if run else []
    execute(
        out,
        Stage("law_plan", 1, ("raw_queries",), ("next_queries",)),
        lambda tables, output: found.append(next_queries(tables, output, sources, tenant=TENANT, size=size, seed=seed)),
    )
    return out, found[0]


def ids(out: Run) -> list[object]:
    return [row["query_id"] for row in read(out, "next_queries")]


@pytest.fixture
def of_run(tmp_path: Path) -> Run:
    return built(tmp_path / "run")


def test_what_nobody_labelled_is_drawn_and_nothing_near_to_a_label(tmp_path: Path, of_run: Run) -> None:
    out, candidates = batch(tmp_path / "a", 9, [], of_run)
    rows = read(out, "next_queries")
    assert candidates == len(rows) == 4
    assert {row["query_id"]: row["count"] for row in rows} == {"left0": 1, "left1": 1, "left2": 9, "left3": 5}
    assert [row["place"] for row in rows] == [1, 2, 3, 4]
    orders = {tuple(ids(batch(tmp_path / f"{seed}", 9, [], of_run, seed)[0])) for seed in range(8)}
    assert len(orders) > 1, "the seed draws"


def test_what_comes_in_leaves_the_order_of_the_others(tmp_path: Path, of_run: Run) -> None:
    files = [
        {"tenant": TENANT, "query_id": f"f{n}", "text": text, "timestamp": None, "count": 1}
        for n, text in enumerate(("gpu driver crash", "printer offline", "vpn token expired"))
    ]
    before = ids(batch(tmp_path / "a", 9, [], of_run)[0])
    after = ids(batch(tmp_path / "b", 9, files, of_run)[0])
    assert len(after) == 7
    assert [one for one in after if one in before] == before


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
