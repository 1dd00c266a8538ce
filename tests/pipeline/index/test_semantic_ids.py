"""Semantic ids of an index: one for each text, told apart, and the same after an update."""

from pathlib import Path

import numpy as np

from darklode.flows.jobs.build_index import update_index
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.index import residual_kmeans
from darklode.pipeline.index.semantic_ids import ADDED_ERROR_FACT, SEMANTIC_IDS_STAGE, _disambiguate
from helpers.indexed import IDS as TEXTS
from helpers.indexed import clustered, copied, put_vectors
from helpers.runs import read


def test_each_text_has_an_id_of_its_own(indexed: Path) -> None:
    run = Run(str(indexed / "index"))
    rows = read(run, "semantic_ids")
    assert [row["text_id"] for row in rows] == TEXTS
    assert len({(*row["codes"], row["disambiguation"]) for row in rows}) == len(TEXTS)  # type: ignore[misc]
    books = residual_kmeans.read_codebooks(run.tables("semantic_codebooks").read("semantic_codebooks"), 0)
    codes, errors = residual_kmeans.encode_vectors(clustered(), books)
    assert [row["codes"] for row in rows] == codes.tolist()
    levels = read(run, "semantic_id_levels")
    np.testing.assert_allclose([row["error"] for row in levels], errors / len(TEXTS), rtol=1e-5)
    assert {row["codebook"] for row in rows} == {residual_kmeans.codebook_id(books)}
    assert all(0 < row["stability"] < 1 for row in levels)  # type: ignore[operator]


def test_an_update_gives_ids_to_what_came_and_leaves_the_others(indexed: Path, tmp_path: Path) -> None:
    folder, vectors = copied(indexed / "index", tmp_path / "index"), clustered()
    before = {row["text_id"]: row for row in read(Run(str(folder)), "semantic_ids")}
    changed = np.concatenate([vectors[10:], vectors[20:23]])
    changed[0] = vectors[700]
    update_index(str(folder), put_vectors(tmp_path / "now.parquet", [*TEXTS[10:], "x0", "x1", "x2"], changed))
    run = Run(str(folder))
    after = {row["text_id"]: row for row in read(run, "semantic_ids")}
    kept = set(TEXTS[11:])
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert [after[f"x{one}"]["codes"] for one in range(3)] == [before[TEXTS[20 + one]]["codes"] for one in range(3)]
    assert after[TEXTS[10]]["codes"] == before[TEXTS[700]]["codes"]
    assert len({(*row["codes"], row["disambiguation"]) for row in after.values()}) == len(after)  # type: ignore[misc]
    manifest = run.manifest(SEMANTIC_IDS_STAGE)
    assert manifest is not None
    assert manifest.facts[ADDED_ERROR_FACT] > 0


def test_what_came_is_numbered_after_what_is_known() -> None:
    group = np.array([0, 0, 1, 1, 1])
    assert _disambiguate(group, np.full(5, -1)).tolist() == [0, 1, 0, 1, 2]
    assert _disambiguate(group, np.array([-1, 4, -1, 0, -1])).tolist() == [5, 4, 1, 0, 2]
