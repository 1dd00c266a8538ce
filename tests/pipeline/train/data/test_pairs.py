"""What is gathered: sides, labels and texts, and what is left out."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tables import TABLES
from helpers.adapted import SIDES, build_to_adapt
from helpers.runs import execute, put, read

from ..conftest import Adapted


def gathered(out: Path, *runs: Run, **given: object) -> Run:
    made, settings = Run(str(out)), AdaptSettings.model_validate(given)
    sources = [TrainingSource(run, number, mined=False, text_characters=100) for number, run in enumerate(runs)]
    execute(made, PAIRS_STAGE, lambda _tables, output: adaptation_pairs(sources, output, settings))
    return made


def test_a_train_query_near_to_a_test_query_is_left_out_and_counted(adapted: Adapted) -> None:
    queries = {row["query_id"] for row in read(adapted.out, "adaptation_queries")}
    assert f"train-{SIDES['train'] - 1:03}" not in queries
    assert len(queries) == sum(SIDES.values()) - 1
    (step,) = adapted.out.manifests()["adaptation_pairs"].funnel
    assert step.dropped == {"near to a held-out query": 1}


def test_a_query_that_shares_its_positive_with_training_is_marked(adapted: Adapted) -> None:
    held = [row for row in read(adapted.out, "adaptation_queries") if row["split"] != "train"]
    assert [row["query_id"] for row in held if row["shares_positive"]] == ["test-000"]


def test_what_is_learned_from_is_of_train_alone(adapted: Adapted) -> None:
    labels = read(adapted.out, "adaptation_labels")
    assert {row["query_id"].partition("-")[0] for row in labels if row["learned"]} == {"train"}  # type: ignore[attr-defined]
    assert all(row["relevance"] for row in labels if row["learned"])


def test_the_source_decides_what_is_learned_from(adapted: Adapted, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no query of the runs' train split has a training positive"):
        gathered(tmp_path / "none", adapted.source, sources=["click_one_hop"])
    kept = gathered(tmp_path / "some", adapted.source, sources=["pooled"])
    assert sum(bool(row["learned"]) for row in read(kept, "adaptation_labels")) == SIDES["train"] - 1


@pytest.mark.parametrize("weight", [0.0, 1.5])
def test_a_training_positive_with_an_impossible_probability_is_an_error(tmp_path: Path, weight: float) -> None:
    build = build_to_adapt(tmp_path / "build", {"train": 4, "validation": 2, "test": 2})
    labels = read(build, "training_labels")
    rows = [row | {"weight": weight if row["relevance"] else row["weight"]} for row in labels]
    put(build, "training_labels", pa.Table.from_pylist(rows, schema=TABLES["training_labels"].schema))
    with pytest.raises(ArtifactError, match=f"of query 'train-.*' has the probability {weight:g}; it must be above 0"):
        gathered(tmp_path / "out", build, targets="weighted")
    weights = {row["weight"] for row in read(gathered(tmp_path / "unweighted", build), "adaptation_labels")}
    assert weights == {None, 1.0}


def test_weighted_positives_have_their_probability_and_1_without_one(tmp_path: Path) -> None:
    build = build_to_adapt(tmp_path / "build", {"train": 4, "validation": 2, "test": 2})
    first = next(row for row in read(build, "training_labels") if row["relevance"])
    rows = [row | {"weight": None if row == first else row["weight"]} for row in read(build, "training_labels")]
    put(build, "training_labels", pa.Table.from_pylist(rows, schema=TABLES["training_labels"].schema))
    labels = read(gathered(tmp_path / "out", build, targets="weighted"), "adaptation_labels")
    weights = {row["query_id"]: row["weight"] for row in labels if row["learned"]}
    assert weights.pop(first["query_id"]) == 1.0
    assert set(weights.values()) == {np.float32(0.9)}
    assert {row["weight"] for row in labels if not row["learned"]} == {None}


def test_ids_of_two_runs_do_not_meet(adapted: Adapted, tmp_path: Path) -> None:
    other = build_to_adapt(tmp_path / "other", {"train": 3, "validation": 2, "test": 2})
    both = gathered(tmp_path / "both", adapted.source, other)
    named = [row["text_id"] for row in read(both, "adaptation_texts") if row["index"] == 1]
    assert named
    assert all(str(name).startswith("run 1:") for name in named)
    rows = read(both, "adaptation_queries")
    assert {row["index"] for row in rows} == {0, 1}
    assert all(str(row["group"]).startswith("run 1:") == (row["index"] == 1) for row in rows)


def test_two_tenants_need_a_name(adapted: Adapted, tmp_path: Path) -> None:
    other = build_to_adapt(tmp_path / "other", {"train": 3, "validation": 2, "test": 2}, tenant="b/irch")
    with pytest.raises(ArtifactError, match=r"the tenants acme, b/irch; an adapter belongs to one"):
        gathered(tmp_path / "both", adapted.source, other)
    with pytest.raises(ArtifactError, match="no run has triplets of the tenant c"):
        gathered(tmp_path / "both", adapted.source, other, tenant="c")
    mine = gathered(tmp_path / "mine", adapted.source, other, tenant="b/irch")
    for table in PAIRS_STAGE.writes:
        assert {row["tenant"] for row in read(mine, table)} == {"b/irch"}
