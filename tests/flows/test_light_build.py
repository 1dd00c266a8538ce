"""The preset `light`, from the settings to verdicts, with tiny models in place of those of the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import build_without_prefect
from helpers.subjects import SUBJECTS, write_subjects
from helpers.tiny_onnx import COMMIT, into_hub_cache, tiny_cross_encoder, tiny_encoder

pytest.importorskip("fastembed", reason="fastembed is not installed")
constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub cache with random models under the names of the preset, and no network."""
    hub = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    encoder = tiny_encoder(tmp_path / "encoder", "model_optimized.onnx")
    into_hub_cache(encoder, hub, "Qdrant/bge-small-en-v1.5-onnx-Q")
    into_hub_cache(tiny_cross_encoder(tmp_path / "judge"), hub, "Xenova/ms-marco-MiniLM-L-6-v2")


def build(out: Path, source: Path, settings: Settings) -> list[str]:
    write_run(Run(str(out)), BenchmarkInputs(docs=str(source / "docs"), queries=str(source / "queries.txt")), settings)
    return build_without_prefect(out, source / "docs", source / "queries.txt", settings)


@pytest.mark.usefixtures("models")
def test_bm25_and_the_encoder_fill_a_pool_that_the_cross_encoder_judges(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    source = write_subjects(tmp_path / "source")
    short = ["clean.keep_all=true", "pool.retrievers=[bm25, bge-small]", "pool.depth=5"]
    settings = load_settings("light", assignments=[*short, f"cache.root={tmp_path / 'cache'}"])
    out = tmp_path / "run"
    build(out, source, settings)
    tables = all_tables(Run(str(out)))
    names = tables.sql("SELECT DISTINCT retriever FROM rankings ORDER BY retriever").to_pylist()
    assert [row["retriever"] for row in names] == ["bge-small", "bm25"]
    (verdicts,) = tables.sql(
        "SELECT count(*) AS n, count(DISTINCT query_id) AS queries, count(DISTINCT probability) AS values, "
        "any_value(judge_id) AS judge, count(error) AS errors FROM verdicts"
    ).to_pylist()
    assert verdicts["judge"] == f"fastembed_cross_encoder:Xenova/ms-marco-MiniLM-L-6-v2@{COMMIT}:threshold=0.5"
    assert (verdicts["queries"], verdicts["errors"]) == (len(SUBJECTS), 0)
    assert verdicts["n"] == tables.rows("pool") > 0
    assert verdicts["values"] > 10, "the model tells pairs apart"
    assert build(out, source, settings) == [], "everything is up to date"


def test_the_preset_is_the_embedded_pool_with_an_encoder() -> None:
    light, embedded = load_settings("light"), load_settings("embedded")
    assert light.pool.retrievers == (*embedded.pool.retrievers, "bge-small")
    assert light.encoders["bge-small"].kind == "fastembed"
    assert light.judge.kind == "fastembed_cross_encoder"
