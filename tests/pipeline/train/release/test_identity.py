"""What an adapter says of itself."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.pairs import PAIRS_STAGE
from darklode.pipeline.train.data.term_vectors import TERM_VECTORS_STAGE
from darklode.pipeline.train.fit.heads import head_bytes
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.release.adapter import (
    ADAPTER_FOLDER,
    ENCODER_FOLDER,
    HEAD_FILE,
    Adapter,
    read_record,
    weights_hash,
)
from darklode.pipeline.train.release.headroom import HEADROOM_STAGE
from darklode.pipeline.train.release.identity import (
    DATA_TABLES,
    DEPTH,
    N_PROBE_QUERIES,
    N_PROBE_TEXTS,
    fingerprint,
    index_digest,
    mean_shift,
    record,
)
from darklode.pipeline.train.release.verdict import read_verdict
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import TENANT, base_for, model_in, of_tenants, settings_for, word


def test_the_record_names_base_rows_and_probes(shipped: Path) -> None:
    facts = Adapter.open(str(shipped / "adapter")).facts
    assert (facts["tenant"], facts["shipped"]) == (TENANT, "adapted")
    assert facts["base"] | {"settings": {}, "weights": ""} == {
        "encoder": "model", "weights": "", "pooling": {"pooling_mode": "mean"}, "query prompt": "ask ",
        "document prompt": "", "tokens": "all", "cut": "none", "precision": "float32", "settings": {}, "dimensions": 8,
    }  # fmt: skip
    run = Run(str(shipped / "adapter"))
    assert facts["data"] == fingerprint(run.tables())
    assert facts["weights"] == weights_hash(run.store)
    (index,) = facts["indexes"]
    assert (index["run"], index["texts"], len(index["probes"])) == (str(shipped / "run"), 204, N_PROBE_TEXTS)
    assert [len(index["queries"]), {len(one["found"]) for one in index["queries"]}] == [N_PROBE_QUERIES, {DEPTH}]
    assert index["moved"] > 1e-3


def test_the_adapter_encodes_as_its_folder_does_and_a_blank_query_as_zero(shipped: Path) -> None:
    adapter, base = Adapter.open(str(shipped / "adapter")), base_for(Run(str(shipped / "run")), root=shipped)
    texts = [f"how {word(7)}", " ", f"how {word(14)}"]
    found = adapter.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 0, 1], atol=1e-6)
    assert mean_shift(base.queries(texts)[::2], found[::2]) > 1e-3
    assert adapter.base == model_in(shipped)


def test_weights_of_a_killed_save_are_not_loaded(shipped: Path, tmp_path: Path) -> None:
    """The save replaced the encoder, and was killed before the record."""
    folder = shutil.copytree(shipped / "adapter", tmp_path / "adapter")
    Adapter.open(str(folder)).encode(["how"])
    (folder / ENCODER_FOLDER / "1_Pooling/config.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"query_encoder is not what adapter\.json describes: .* run the command"):
        Adapter.open(str(folder)).encode(["how"])
    with pytest.raises(ArtifactError, match=r"query_encoder is not what adapter\.json describes"):
        _ = Adapter.open(str(folder)).layers


def test_a_light_head_of_a_killed_save_is_not_applied(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(HEAD_FILE, head_bytes([(np.eye(2, dtype=np.float32), np.zeros(2, np.float32))], "tiny"))
    facts = {"form": "head", "weights": weights_hash(store, ADAPTER_FOLDER)}
    adapter = Adapter(store, facts, lambda texts: np.eye(2, dtype=np.float32)[: len(texts)])
    assert adapter.encode(["a"]).tolist() == [[1, 0]]
    store.write(HEAD_FILE, head_bytes([(-np.eye(2, dtype=np.float32), np.zeros(2, np.float32))], "tiny"))
    with pytest.raises(ArtifactError, match=r"adapter is not what adapter\.json describes"):
        replace(adapter).encode(["a"])


def test_scores_decided_anew_are_recorded(shipped: Path, tmp_path: Path) -> None:
    """The same weights with another interval, as after another number of resamples."""
    run = Run(str(shutil.copytree(shipped / "adapter", tmp_path / "adapter")))
    base, before = base_for(Run(str(shipped / "run")), root=shipped), read_record(run.store)
    verdict = read_verdict(run.tables()) | {"shipped": "adapted"}
    record(run, base, model_in(shipped), verdict | {"low": 0.5, "label_bias": "biased"}, before["data"])
    after = read_record(run.store)
    assert (after["id"], after["scores"]["low"], after["label_bias"]) == (before["id"], 0.5, "biased")
    assert after["indexes"] == before["indexes"]


def test_an_index_has_one_name_in_whatever_order_its_texts_come() -> None:
    ids, hashes = pa.chunked_array([["a", "b"]]), pa.chunked_array([["1", "2"]])
    again = pa.chunked_array([["b"], ["a"]]), pa.chunked_array([["2"], ["1"]])
    assert index_digest(ids, hashes) == index_digest(*again) != index_digest(ids, again[1])


def test_a_folder_without_a_record_is_no_adapter(tmp_path: Path, run: Run) -> None:
    with pytest.raises(ArtifactError, match="contains no finished adapter"):
        Adapter.open(str(tmp_path))
    run.store.write("adapter.json", b"{ broken")
    assert read_record(run.store) == {}
    run.store.write(f"{ENCODER_FOLDER}/model", b"1")
    before = weights_hash(run.store)
    run.store.write(f"{ENCODER_FOLDER}/model", b"2")
    assert weights_hash(run.store) != before


def trained_on(run: Run, root: Path, tenant: str) -> tuple[str, str]:
    """The fingerprint of what was learned from, and of the weights."""
    given = AdaptSettings(method="linear", tenant=tenant, max_steps=50, batch_size=16, learning_rates=(1e-3,))
    base, out = base_for(run, root=root), Run(str(root / f"out-{tenant}"))
    for step in steps(base, settings_for(root).model_copy(update={"adapt": given})):
        if step.stage in {PAIRS_STAGE, TERM_VECTORS_STAGE, HEADROOM_STAGE, TRAIN_STAGE}:
            out.execute(step.plan(out), step.execute)
    return fingerprint(out.tables(*DATA_TABLES)), out.tables("adapter_weights").content("adapter_weights")


@pytest.mark.slow
def test_an_adapter_learns_from_its_tenants_rows_alone(tmp_path: Path) -> None:
    """Whatever another tenant's rows of the same run say, fingerprint and weights are the same, to the byte."""
    found = {}
    for said in ("gupa", "tola"):
        root = tmp_path / said
        run = of_tenants(root, {TENANT: "", "other": said})
        found[said] = [trained_on(run, root, tenant) for tenant in (TENANT, "other")]
    (mine, theirs), (again, changed) = found.values()
    assert mine == again
    assert theirs[0] != changed[0] != mine[0]
    assert theirs[1] != changed[1]


def test_the_mean_shift_is_that_of_the_angles_and_zero_without_queries() -> None:
    base = np.array([[1, 0], [0, 1]], np.float32)
    assert mean_shift(base, base) == 0
    assert mean_shift(base, base[::-1]) == 1
    assert mean_shift(base[:0], base[:0]) == 0
