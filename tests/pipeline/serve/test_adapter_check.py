"""An adapter against an index: what fits, and what each mismatch is called."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER, RECORD_FILE, weights_hash
from helpers.adapted import build_to_adapt, model_in, refused, shipped_adapter

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def adapter(shipped: Path, tmp_path: Path) -> Path:
    """A copy of one's own."""
    return Path(shutil.copytree(shipped / "adapter", tmp_path / "adapter"))


def changed(adapter: Path, change: Change) -> None:
    facts = json.loads((adapter / RECORD_FILE).read_text())
    change(facts)
    (adapter / RECORD_FILE).write_text(json.dumps(facts))


def test_the_run_that_it_was_adapted_to_fits(shipped: Path) -> None:
    assert refused(shipped / "adapter", shipped / "run") == ""


NAMED: dict[str, Change] = {
    "weights of the base: files-": lambda facts: facts["base"].update(weights="files-0"),
    "{'pooling_mode': 'mean'}, recorded {'pooling_mode': 'cls'}": lambda facts: facts["base"].update(
        pooling={"pooling_mode": "cls"}
    ),
    "query prompt of the base: ask , recorded none": lambda facts: facts["base"].update({"query prompt": ""}),
    "dimensions: 8, recorded 9": lambda facts: facts["base"].update(dimensions=9),
    "recorded texts: none is in the index": lambda facts: facts["indexes"][0].update(probes=["gone"]),
    "is applied: mean shift of 16 queries": lambda facts: facts["indexes"][0].update(moved=0.5),
    "first ten: unchanged for 15 of 16": lambda facts: facts["indexes"][0]["queries"][0]["found"][0].update(score=0.1),
}


@pytest.mark.parametrize("said", NAMED)
def test_a_mismatch_is_named(shipped: Path, adapter: Path, said: str) -> None:
    changed(adapter, NAMED[said])
    assert said in refused(adapter, shipped / "run")


def test_an_adapter_that_is_not_applied_is_noticed(shipped: Path, adapter: Path) -> None:
    """As a server that loads the base alone: the head's layers are left out, and the hash is as if they had to be."""
    modules = json.loads((adapter / ENCODER_FOLDER / "modules.json").read_text())
    kept = [one for one in modules if not one["type"].endswith("Dense")]
    assert len(kept) < len(modules)
    (adapter / ENCODER_FOLDER / "modules.json").write_text(json.dumps(kept))
    assert "files of the adapter: " in refused(adapter, shipped / "run")
    changed(adapter, lambda facts: facts.update(weights=weights_hash(Store(str(adapter)))))
    assert "is applied: mean shift of 16 queries 0.000000 (1 − cosine)" in refused(adapter, shipped / "run")


def test_vectors_of_another_model_under_the_same_name_are_noticed(shipped: Path, adapter: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(shipped / "run", tmp_path / "run"))
    settings = read_run(Run(str(run))).settings
    other = tmp_path / "cache"
    text = (run / "settings.yaml").read_text().replace(str(settings.cache.root), str(other))
    (run / "settings.yaml").write_text(text)
    recorded_with = adapter / "settings.yaml"  # the cache that `adapt` used is looked into, too
    recorded_with.write_text(recorded_with.read_text().replace(str(settings.cache.root), str(other)))
    assert "vectors of the index: 204 of 204 texts have none" in refused(adapter, run)
    hashes = Run(str(run)).tables("chunks").read("chunks", ["content_hash"])["content_hash"].to_pylist()
    wrong = np.random.default_rng(1).standard_normal((len(hashes), 8)).astype(np.float32)
    cache = EmbeddingCache(str(other), settings.cache.vector_dtype)
    with cache.writer(model_in(shipped).encoder_id(), 8) as writer:
        writer.add(hashes, wrong / np.linalg.norm(wrong, axis=1, keepdims=True))
    assert "texts encoded again: cosine with the index's vectors" in refused(adapter, run)


def test_another_tenants_index_is_refused(shipped: Path, tmp_path: Path) -> None:
    build_to_adapt(tmp_path / "run", tenant="other")
    with pytest.raises(DoesNotFit, match=r"is for tenant acme, and .*run has no such tenant"):
        refused(shipped / "adapter", tmp_path / "run")


@pytest.mark.slow
def test_a_real_encoder_fits_and_the_same_one_with_another_pooling_does_not(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 from its package, in a folder whose pooling is changed afterwards."""
    minilm = pytest.importorskip("helpers.minilm")
    model = minilm.clone(tmp_path / "minilm")
    source = build_to_adapt(tmp_path / "run")
    adapter = shipped_adapter(tmp_path, source, SentenceTransformersSettings(model=str(model), device="cpu"))
    assert refused(Path(adapter.store.url), tmp_path / "run") == ""
    config = model / "1_Pooling" / "config.json"
    changed_pooling = json.loads(config.read_text()) | {
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    config.unlink()
    config.write_text(json.dumps(changed_pooling))
    assert "pooling of the base: " in refused(Path(adapter.store.url), tmp_path / "run")
