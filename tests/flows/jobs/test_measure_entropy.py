"""darklode entropy over a build: a row a labelled positive, means by split, an adapter at its own temperature."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from darklode.flows.cli import app
from darklode.flows.jobs.measure_entropy import TEMPERATURE, measure_entropy
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.laws.entropy_stage import ENTROPY_STAGE
from helpers.adapted import SIDES, TENANT, build_to_adapt, model_in, shipped_adapter
from helpers.runs import read

pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("entropy")
    model_in(root)
    return build_to_adapt(root / "run")


def root_of(run: Run) -> Path:
    return Path(run.store.url).parent


def test_each_labelled_positive_has_a_row_and_each_split_a_mean(source: Run) -> None:
    model = str(root_of(source) / "model")
    measure_entropy(source.store.url, model)
    found = CliRunner().invoke(app, ["entropy", source.store.url, "--encoder", model, "--json"], catch_exceptions=False)
    rows, means = read(source, "contrastive_entropy"), json.loads(found.stdout)["contrastive_entropy_means"]
    assert len(rows) == sum(SIDES.values())
    assert {row["temperature"] for row in rows} == {TEMPERATURE}
    assert {row["negatives"] for row in rows} <= {3 * len(rows) - 2, 256}
    assert {one["split"]: one["pairs"] for one in means} == SIDES
    for one in means:
        values = [row["entropy"] for row in rows if row["split"] == one["split"]]
        assert one["mean"] == pytest.approx(np.mean(values))
        assert one["low"] < one["mean"] < one["high"]
        assert one["chance"] == pytest.approx(np.log(1 + rows[0]["negatives"]))


def test_scores_that_are_all_alike_give_chance_and_nothing_is_measured_twice(source: Run) -> None:
    model = str(root_of(source) / "model")
    measure_entropy(source.store.url, model, temperature=1e6)
    rows, before = read(source, "contrastive_entropy"), source.manifest(ENTROPY_STAGE)
    assert [row["entropy"] for row in rows] == pytest.approx([np.log(1 + rows[0]["negatives"])] * len(rows), abs=1e-5)
    measure_entropy(source.store.url, model, temperature=1e6)
    assert source.manifest(ENTROPY_STAGE) == before


@pytest.mark.slow
def test_an_adapter_is_measured_at_its_own_temperature_and_for_its_tenant(source: Run) -> None:
    adapter = shipped_adapter(root_of(source), source)
    measure_entropy(source.store.url, adapter.store.url)
    assert {row["temperature"] for row in read(source, "contrastive_entropy")} == {0.03}
    assert {row["tenant"] for row in read(source, "contrastive_entropy")} == {TENANT}
    with pytest.raises(DoesNotFit):
        measure_entropy(source.store.url, adapter.store.url, tenant="other")


def test_a_tenant_that_is_not_there_is_named(source: Run) -> None:
    with pytest.raises(ArtifactError, match="nobody"):
        measure_entropy(source.store.url, str(root_of(source) / "model"), tenant="nobody")
