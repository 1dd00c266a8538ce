"""The frozen side: each run's texts are searched by its own queries, and copies share a vector."""

from pathlib import Path

import numpy as np

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.pairs import PAIRS, adaptation_pairs
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import base_for, build_to_adapt
from helpers.runs import execute

from .conftest import Adapted

SMALL = {"train": 4, "validation": 2, "test": 2}


def test_a_query_finds_texts_of_its_own_run_alone(adapted: Adapted, tmp_path: Path) -> None:
    runs = [build_to_adapt(tmp_path / name, SMALL) for name in ("one", "two")]
    base, out = base_for(*runs, root=adapted.root), Run(str(tmp_path / "out"))
    execute(out, PAIRS, lambda _tables, output: adaptation_pairs(base.sources, output, AdaptSettings()))
    frozen = base.open(out.tables())
    n = sum(SMALL.values()) * 3
    assert len(frozen) == 2 * n
    same = np.repeat(base.queries(["how badu"]), 2, axis=0)
    rows, scores = frozen.search(same, np.array([0, 1]), 5)
    assert (rows[0] < n).all()
    assert (rows[1] - n == rows[0]).all(), "both runs hold the same texts"
    assert (scores[0] == scores[1]).all()
    found = frozen.take(frozen.position_of[rows.reshape(-1)])
    np.testing.assert_allclose((found @ same[0]).reshape(2, 5), scores, atol=1e-6)


def test_nothing_is_encoded_twice(adapted: Adapted) -> None:
    before = {path: path.stat().st_mtime_ns for path in (adapted.root / "cache").rglob("*.vectors")}
    adapted.base.open(adapted.out.tables())
    assert before
    assert {path: path.stat().st_mtime_ns for path in (adapted.root / "cache").rglob("*.vectors")} == before
