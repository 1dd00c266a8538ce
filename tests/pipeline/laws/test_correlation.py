"""Correlation of entropy with ranking: numpy's own coefficient, cells paired, the untrained encoder counted once."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.laws.correlation import correlations, pearson
from darklode.schemas.law_tables import LAW_POINTS
from helpers.runs import put

SIZES = (0, 16, 32, 64, 128)


def found(folder: Path, reached: Any, sources: tuple[str, ...] = ("a", "b")) -> list[dict[str, Any]]:
    rows = []
    for source in sources:
        for size in SIZES:
            for seed in range(2):
                about = {"source": source, "size": size, "seed": seed}
                entropy = 5.0 if not size else 4 - 0.3 * np.log(size) + 0.1 * seed + 0.2 * (source == "b")
                rows.append(about | {"measure": "contrastive_entropy", "value": entropy})
                rows.append(about | {"measure": "nDCG@10", "value": reached(entropy)})
    run = Run(str(folder / "laws"))
    put(run, "law_points", pa.Table.from_pylist(rows, schema=LAW_POINTS.schema))
    told: list[dict[str, Any]] = correlations(run.tables("law_points"), 0).to_pylist()
    return told


def test_what_falls_in_a_line_has_minus_one_and_the_untrained_encoder_counts_once(tmp_path: Path) -> None:
    rows = found(tmp_path, lambda entropy: 0.9 - 0.1 * entropy)
    assert [(row["source"], row["encoders"]) for row in rows] == [("a", 9), ("all sources", 17), ("b", 9)]
    assert all(row["pearson"] == pytest.approx(-1) and row["low"] <= row["pearson"] + 1e-9 for row in rows)


def test_entropy_is_paired_with_the_same_encoders_measure(tmp_path: Path) -> None:
    """Two encoders of unknown parameters; paired crosswise, there would be 4 pairs a cell and no line."""
    rows = []
    for encoder, entropy in (("a", 3.0), ("b", 1.0)):
        for step, size in enumerate((16, 32, 64)):
            about = {"source": "labels", "size": size, "seed": 0, "encoder": "m", "encoder_id": encoder}
            rows.append(about | {"measure": "contrastive_entropy", "value": entropy - 0.1 * step})
            rows.append(about | {"measure": "nDCG@10", "value": 0.9 - 0.1 * (entropy - 0.1 * step)})
    run = Run(str(tmp_path / "laws"))
    put(run, "law_points", pa.Table.from_pylist(rows, schema=LAW_POINTS.schema))
    (row,) = correlations(run.tables("law_points"), 0).to_pylist()
    assert (row["encoders"], row["pearson"]) == (6, pytest.approx(-1))


def test_the_interval_holds_the_coefficient_of_noise(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    (row,) = found(tmp_path, lambda entropy: 0.5 - 0.01 * entropy + draws.normal(0, 0.02), ("a",))
    assert row["low"] < row["pearson"] < row["high"] < 1
    assert row["high"] - row["low"] > 0.2


def test_sums_give_the_coefficient_that_numpy_gives() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 30))
    sums = np.column_stack([np.ones(30), x, y, x * x, y * y, x * y]).sum(axis=0)
    assert pearson(sums) == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_what_stands_still_has_no_coefficient(tmp_path: Path) -> None:
    assert [row["pearson"] for row in found(tmp_path, lambda _: 0.5, ("a",))] == [None]
