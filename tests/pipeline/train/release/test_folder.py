"""What one takes home: a fresh process without Darklode loads it and gets the vectors that training saw."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from peft import PeftModel

from darklode.pipeline.base.artifacts import Output, Tables
from darklode.pipeline.base.errors import ArtifactError, DarklodeError, SettingsError
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.base.models.precision import rounding
from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.fit.head_methods import HeadMethod
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.fit.trainable_encoder import START_BIAS, START_TENSOR, TrainableEncoder
from darklode.pipeline.train.fit.weights import as_rows
from darklode.pipeline.train.fit.whitening import whiten
from darklode.pipeline.train.release.adapter import ADAPTER_FOLDER as ADAPTER
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER, SAVED_RECORD_FILE, Adapter
from darklode.pipeline.train.release.card import card
from darklode.pipeline.train.release.folder import recorded_difference, require_reproducible, save
from darklode.pipeline.train.release.identity import fingerprint, record
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, read_verdict
from darklode.pipeline.train.release.warm_start import load_initial_head
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import TENANT, model_in
from helpers.runs import execute

from ..conftest import QUICK, Adapted, decided, mixed_weights

ALONE = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer(sys.argv[1], device="cpu").encode(["how badu", "how befi"], show_progress_bar=False)
assert not any(name.partition(".")[0] == "darklode" for name in sys.modules)
np.save(sys.argv[2], vectors)
"""


def moved(layers: int) -> Head:
    rows = np.random.default_rng(5)
    weights = [
        (rows.standard_normal((8, 8)).astype(np.float32) * 0.3, rows.standard_normal(8).astype(np.float32) * 0.1)
        for _ in range(layers)
    ]
    return Head.from_layers(weights)


def loaded_elsewhere(folder: Path, to: Path) -> Floats:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder), str(to)],
        env=environment,
        capture_output=True,
        check=False,
        cwd=to.parent,
    )
    assert done.returncode == 0, done.stderr.decode()
    return np.asarray(np.load(to), np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 3])
def test_a_fresh_process_without_darklode_gets_the_same_vectors(adapted: Adapted, tmp_path: Path, layers: int) -> None:
    head = moved(layers)
    run = decided(adapted, tmp_path / "out", head.state())
    save(run, adapted.base, model_in(adapted.root), QUICK)
    wanted = head.apply_to(adapted.base.queries(["how badu", "how befi"]))
    found = loaded_elsewhere(tmp_path / "out" / ENCODER_FOLDER, tmp_path / "vectors.npy")
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert recorded_difference(run) < 1e-6
    assert run.store.size(f"{ADAPTER}/adapter.safetensors")


@pytest.mark.slow
def test_term_vectors_need_no_darklode_and_no_warm_start_begins_with_them(adapted: Adapted, tmp_path: Path) -> None:
    weights, encoder = mixed_weights(), model_in(adapted.root)
    run = decided(adapted, tmp_path / "out", weights)
    save(run, adapted.base, encoder, QUICK)
    tables = run.tables()
    task = Task.from_tables(tables, adapted.base.open(tables), same_document=False)
    adapter, texts = Adapter(run.store, {"form": "encoder"}), list(task.train.texts)
    wanted = HeadMethod(QUICK, adapted.base).vectors(weights, 1.0, task.train)
    np.testing.assert_allclose(adapter.encode(texts), wanted, atol=1e-5)
    assert recorded_difference(run) < 1e-5
    found = loaded_elsewhere(tmp_path / "out" / ENCODER_FOLDER, tmp_path / "vectors.npy")
    np.testing.assert_allclose(found, adapter.encode(["how badu", "how befi"]), atol=1e-6)
    assert "term vectors: " in card(run, adapted.settings, encoder, ["run"]).decode()
    record(run, adapted.base, encoder, read_verdict(run.tables(VERDICT_STAGE.name)), fingerprint(run.tables()))
    with pytest.raises(SettingsError, match="has term vectors"):
        load_initial_head(Adapter.open(run.store.url), TENANT, encoder, "linear")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_handed_over_and_checked_before_training(
    adapted: Adapted, tmp_path: Path, dtype: str
) -> None:
    model = model_in(adapted.root).model_copy(update={"dtype": dtype})
    base, run = replace(adapted.base, encoder=model), decided(adapted, tmp_path / "out", moved(3).state())
    require_reproducible(base, model, run.tables("adaptation_queries"))
    save(run, base, model, QUICK)
    assert 0 < recorded_difference(run) <= rounding(dtype)
    if dtype == "bfloat16":
        assert recorded_difference(run) > rounding("float32")
    other = model.model_copy(update={"query_prompt": "something else "})
    with pytest.raises(DarklodeError, match="gives other vectors when saved"):
        require_reproducible(base, other, run.tables("adaptation_queries"))


@pytest.mark.slow
def test_the_base_is_handed_over_as_it_is(adapted: Adapted, tmp_path: Path) -> None:
    run = decided(adapted, tmp_path / "out", None)
    save(run, adapted.base, model_in(adapted.root), QUICK)
    found = loaded_elsewhere(tmp_path / "out" / ENCODER_FOLDER, tmp_path / "vectors.npy")
    np.testing.assert_allclose(found, adapted.base.queries(["how badu", "how befi"]), atol=1e-6)
    assert run.store.size(f"{ADAPTER}/adapter.safetensors") is None


def test_a_whole_folder_stands_and_a_damaged_one_is_made_again(adapted: Adapted, tmp_path: Path) -> None:
    run = decided(adapted, tmp_path / "out", moved(1).state())
    save(run, adapted.base, model_in(adapted.root), QUICK)
    names = json.loads(run.store.read(SAVED_RECORD_FILE) or b"")["files"]
    before = {name: run.store.read(name) for name in names}
    written = (tmp_path / "out" / SAVED_RECORD_FILE).stat().st_mtime_ns
    save(run, adapted.base, model_in(adapted.root), QUICK)
    assert (tmp_path / "out" / SAVED_RECORD_FILE).stat().st_mtime_ns == written
    run.store.delete(f"{ENCODER_FOLDER}/modules.json")
    save(run, adapted.base, model_in(adapted.root), QUICK)
    assert {name: run.store.read(name) for name in names} == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("method", ["lora", "top_n", "full"])
def test_a_trained_encoder_loads_there_too_and_lora_alone_in_peft(
    adapted: Adapted, tmp_path: Path, method: str
) -> None:
    adapt, model = (
        AdaptSettings.model_validate({"method": method, "lora_rank": 4, "top_layers": 1}),
        model_in(adapted.root),
    )
    encoder, draws = TrainableEncoder(load_model(model, "cpu"), model, adapt), np.random.default_rng(3)
    weights = {name: one + draws.normal(0, 0.2, one.shape).astype(np.float32) for name, one in encoder.state().items()}
    began = np.eye(8, dtype=np.float32) + draws.normal(0, 0.3, (8, 8)).astype(np.float32)
    weights |= {START_TENSOR: began, START_BIAS: draws.normal(0, 0.3, 8).astype(np.float32)}
    run = decided(adapted, tmp_path / "out", weights)
    save(run, adapted.base, model, adapt)
    encoder.restore(weights, 1.0)
    wanted = encoder.vectors(QuerySet.from_texts(["how badu", "how befi"], adapted.base))
    found = loaded_elsewhere(tmp_path / "out" / ENCODER_FOLDER, tmp_path / "vectors.npy")
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.abs(wanted - adapted.base.queries(["how badu", "how befi"])).max() > 1e-2
    alone = sorted(path.name for path in (tmp_path / "out" / ADAPTER).glob("*"))
    assert (
        alone
        == {
            "full": ["start.safetensors"],
            "top_n": ["adapter.safetensors", "start.safetensors"],
            "lora": ["adapter_config.json", "adapter_model.safetensors", "start.safetensors"],
        }[method]
    )
    if method == "lora":
        plain = load_model(model, "cpu")
        PeftModel.from_pretrained(plain[0].auto_model, str(tmp_path / "out" / ADAPTER)).eval()
        beside = plain.encode(["ask how badu", "ask how befi"], normalize_embeddings=True, show_progress_bar=False)
        np.testing.assert_allclose(whiten(beside, began, weights[START_BIAS]), wanted, atol=1e-6)


def test_a_kill_between_encoder_and_record_leaves_nothing_that_loads(adapted: Adapted, tmp_path: Path) -> None:
    run, model = decided(adapted, tmp_path / "out", moved(1).state()), model_in(adapted.root)

    def finish() -> Floats:
        verdict = read_verdict(run.tables(VERDICT_STAGE.name))
        record(run, adapted.base, model, verdict, fingerprint(run.tables()))
        return Adapter.open(run.store.url).encode(["how badu"])

    def tried(_tables: Tables, output: Output) -> None:
        output.write("adaptation_trials", trials)
        output.write("adapter_weights", as_rows(0, Head(8, 1).state()))

    save(run, adapted.base, model, QUICK)
    before, trials = finish(), run.tables().read("adaptation_trials")
    execute(run, TRAIN_STAGE, tried)
    save(run, adapted.base, model, QUICK)
    with pytest.raises(ArtifactError, match=r"query_encoder is not what adapter\.json describes"):
        Adapter.open(run.store.url).encode(["how badu"])
    assert np.abs(finish() - before).max() > 1e-2
