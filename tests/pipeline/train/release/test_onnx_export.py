"""The ONNX graph: a process with onnxruntime and tokenizers alone gets the model's own vectors by it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.pipeline.train.release import onnx_export
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.folder import save
from darklode.pipeline.train.release.identity import fingerprint, record
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, read_verdict
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import model_in

from ..conftest import QUICK, Adapted, decided, mixed_weights

TEXTS = ["how badu", "", "how befi ask badu " * 40]

ALONE = """
import json, sys
for name in ("torch", "transformers", "sentence_transformers", "darklode"):
    sys.modules[name] = None
import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer
folder, texts = sys.argv[1], json.loads(sys.argv[2])
about = json.load(open(f"{folder}/about.json"))
found = Tokenizer.from_file(f"{folder}/tokenizer.json").encode_batch([about["prompt"] + text for text in texts])
columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
given = {name: np.array([getattr(one, columns[name]) for one in found], np.int64) for name in about["inputs"]}
np.save(sys.argv[3], InferenceSession(f"{folder}/model.onnx").run([about["output"]], given)[0])
"""


def of_graph_alone(adapter: Adapter, to: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    folder = adapter.store.path(onnx_export.ONNX_FOLDER)
    command = [sys.executable, "-c", ALONE, folder, json.dumps(TEXTS), str(to)]
    done = subprocess.run(command, capture_output=True, check=False, env={})
    assert done.returncode == 0, done.stderr.decode()
    return np.asarray(np.load(to), np.float32)


@pytest.fixture
def copied(shipped: Path, tmp_path: Path) -> Adapter:
    return Adapter.open(str(shutil.copytree(shipped / "adapter", tmp_path / "adapter")))


def same(adapter: Adapter, tmp_path: Path) -> bool:
    wanted = adapter.model.encode(TEXTS, show_progress_bar=False)
    return bool(np.abs(of_graph_alone(adapter, tmp_path / "vectors.npy") - wanted).max() < 1e-5)


def test_a_head_is_in_the_graph_and_nothing_of_darklode_is_needed(copied: Adapter, tmp_path: Path) -> None:
    off = onnx_export.export(copied)
    assert same(copied, tmp_path)
    about = json.loads(copied.store.read("onnx/about.json") or b"")
    assert (about["difference"], about["adapter"], about["prompt"]) == (off, copied.id, "ask ")
    assert off <= onnx_export.MAX_DIFFERENCE


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_merged_lora_is_in_the_graph(adapted: Adapted, tmp_path: Path) -> None:
    adapt, model = AdaptSettings(method="lora", lora_rank=4), model_in(adapted.root)
    encoder, draws = TrainableEncoder(load_model(model, "cpu"), model, adapt), np.random.default_rng(3)
    weights = {name: one + draws.normal(0, 0.2, one.shape).astype(np.float32) for name, one in encoder.state().items()}
    run = decided(adapted, tmp_path / "out", weights)
    save(run, adapted.base, model, adapt)
    record(run, adapted.base, model, read_verdict(run.tables(VERDICT_STAGE.name)), fingerprint(run.tables()))
    made = Adapter.open(run.store.url)
    onnx_export.export(made)
    assert same(made, tmp_path)


def test_term_vectors_are_in_the_graph(adapted: Adapted, tmp_path: Path) -> None:
    run = decided(adapted, tmp_path / "out", mixed_weights())
    save(run, adapted.base, model_in(adapted.root), QUICK)
    facts = read_verdict(run.tables(VERDICT_STAGE.name))
    record(run, adapted.base, model_in(adapted.root), facts, fingerprint(run.tables()))
    made = Adapter.open(run.store.url)
    onnx_export.export(made)
    assert same(made, tmp_path)


def test_a_retrained_adapter_has_no_graph_of_the_old_weights(adapted: Adapted, tmp_path: Path) -> None:
    run = decided(adapted, tmp_path / "out", mixed_weights())
    save(run, adapted.base, model_in(adapted.root), QUICK)
    for name in ("model.onnx", "about.json"):
        run.store.write(f"{onnx_export.ONNX_FOLDER}/{name}", b"{}")
    save(run, adapted.base, model_in(adapted.root), QUICK)
    assert run.store.size("onnx/model.onnx") == 2  # the weights are the same
    run.store.delete("query_encoder/modules.json")
    save(run, adapted.base, model_in(adapted.root), QUICK)
    assert run.store.sizes(onnx_export.ONNX_FOLDER) == {}


def test_a_graph_that_gives_other_vectors_is_not_handed_over(copied: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Adapter.encode
    monkeypatch.setattr(Adapter, "encode", lambda self, texts: encode(self, texts) + np.float32(0.001))
    with pytest.raises(DarklodeError, match=r"the ONNX graph gives other vectors than the model \(by 1\.0e-03\)"):
        onnx_export.export(copied)
    assert copied.store.read("onnx/about.json") is None


def test_what_is_missing_is_named(copied: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_export, "find_spec", lambda name: None if name == "onnx" else name)
    with pytest.raises(MissingPart, match=r'onnx: pip install "darklode\[onnx\]"'):
        onnx_export.export(copied)
