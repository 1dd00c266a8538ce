"""What one takes home: it loads without Darklode, its vectors are those of training, and Darklode indexes with it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder
from darklode.pipeline.towers.dual.folder import TOWERS_FOLDER, save, sentence
from darklode.pipeline.towers.dual.stage import best_towers
from darklode.pipeline.train.fit.determinism import deterministic

from .conftest import QUICK, Trained

ALONE = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer
towers = SentenceTransformer(sys.argv[1], device="cpu", truncate_dim=4)
queries, documents = towers.encode_query(["how badu"]), towers.encode_document(["badu befi"])
assert not any(name.partition(".")[0] == "darklode" for name in sys.modules)
np.savez(sys.argv[2], queries=queries, documents=documents)
"""


def unit(vectors: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.slow
def test_a_fresh_process_without_darklode_gets_both_towers_prefixes(both: Trained, tmp_path: Path) -> None:
    folder, to = Path(both.out.store.url) / TOWERS_FOLDER, tmp_path / "found.npz"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder), str(to)], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    with deterministic(0):
        towers = best_towers(both.out.tables(), both.beginning, QUICK, both.settings.adapt)
        wanted = towers.encode(["how badu"], queries=True), towers.encode(["badu befi"], queries=False)
    found = np.load(to)
    for mine, theirs in zip((found["queries"], found["documents"]), wanted, strict=True):
        assert mine.shape == (1, 4)
        np.testing.assert_allclose(unit(mine), unit(theirs[:, :4]), atol=1e-5)


@pytest.mark.slow
def test_darklode_encodes_with_the_tower_that_it_is_for(both: Trained) -> None:
    folder = str(Path(both.out.store.url) / TOWERS_FOLDER)
    settings = SentenceTransformersSettings(model=folder, device="cpu", query_prompt="ask ", truncate_dim=4)
    encoder = SentenceTransformersEncoder(settings)
    towers = best_towers(both.out.tables(), both.beginning, QUICK, both.settings.adapt)
    queries, texts = towers.encode(["badu"], queries=True), towers.encode(["badu"], queries=False)
    np.testing.assert_allclose(encoder.encode_queries(["badu"]), unit(queries[:, :4]), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_documents(["badu"]), unit(texts[:, :4]), atol=1e-5)
    (_, batch), *_ = encoder.encode_batches(["badu"], queries=True)
    np.testing.assert_allclose(batch, unit(queries[:, :4]), atol=1e-5)
    alone = load_query_tower(settings, "cpu").encode(["ask badu"])
    np.testing.assert_allclose(alone, queries, atol=1e-5)


def test_a_folder_that_stands_is_not_written_again(both: Trained) -> None:
    folder = Path(both.out.store.url) / TOWERS_FOLDER
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    save(both.out, both.beginning, QUICK, both.settings.adapt)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert "on 16 labelled test queries" in sentence(both.out.tables())
