"""Releases, refusals, and the way back."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from darklode.flows import open_systems
from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit, NoLift, SettingsError
from darklode.pipeline.serve.registry import ADAPTERS_FOLDER, REGISTRY_FILE, AdapterRegistry
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER, RECORD_FILE, Adapter, weights_hash
from darklode.pipeline.train.release.term_modules import TERMS_PATH
from darklode.pipeline.train.release.warm_start import load_initial_head
from helpers.adapted import TENANT, judged_by


def again(adapter: Path, to: Path, name: str, **changes: str) -> Path:
    """The same adapter under another id."""
    facts = json.loads((shutil.copytree(adapter, to) / RECORD_FILE).read_text())
    (to / RECORD_FILE).write_text(json.dumps(facts | {"id": name} | changes))
    return to


def released(root: Path, adapter: Path, run: Path, force: str | None = None) -> str:
    with open_systems.open_adapter_check(str(adapter), str(run)) as check:
        return AdapterRegistry(str(root)).release(check, force)


def states(root: Path) -> dict[str, str]:
    return {row["adapter"]: row["state"] for row in AdapterRegistry(str(root)).rows()}


def test_a_release_on_labels_of_a_judge_with_the_base_encoder_is_a_warning(shipped: Path, tmp_path: Path) -> None:
    adapter = str(shipped / "adapter")
    run = Run(str(shutil.copytree(shipped / "run", tmp_path / "run")))
    said = open_systems.release(adapter, run.store.url, str(tmp_path / "before"))
    assert "live for acme" in said
    assert "shares" not in said
    judged_by(run, Adapter.open(adapter).base)
    said = open_systems.release(adapter, run.store.url, str(tmp_path / "registry"))
    assert "live for acme" in said
    assert "The labels come from an encoder judge with the model model, which the measured encoder" in said


def test_a_release_is_kept_and_rollback_restores_the_one_before(shipped: Path, tmp_path: Path) -> None:
    root, run = tmp_path / "registry", shipped / "run"
    second = again(shipped / "adapter", tmp_path / "second", "b" * 16)
    first = released(root, shipped / "adapter", run)
    assert released(root, shipped / "adapter", run) == first
    released(root, second, run)
    shutil.rmtree(second)  # as the next night's adapter does
    assert states(root) == {first: "before", "b" * 16: "released"}
    kept = Adapter.open(f"{root}/{ADAPTERS_FOLDER}/{'b' * 16}")
    assert weights_hash(kept.store) == kept.facts["weights"]
    assert kept.encode(["how badu"]).shape == (1, 8)
    registry = AdapterRegistry(str(root))
    assert registry.rollback(TENANT) == first
    assert states(root) == {first: "released", "b" * 16: "retired"}
    assert AdapterRegistry(str(root)).rollback(TENANT) is None
    with pytest.raises(ArtifactError, match="no released adapter of tenant acme"):
        AdapterRegistry(str(root)).rollback(TENANT)
    told = [(row["action"], row["before"], row["now"]) for row in AdapterRegistry(str(root)).history]
    assert told == [
        ("release", None, first),
        ("release", first, first),
        ("release", first, "b" * 16),
        ("rollback", "b" * 16, first),
        ("rollback", first, None),
    ]


def test_term_vectors_are_kept_so_that_no_training_starts_from_their_head_alone(shipped: Path, tmp_path: Path) -> None:
    mixed = Path(shutil.copytree(shipped / "adapter", tmp_path / "mixed"))
    save_file({"vectors": np.zeros((1, 8), np.float32)}, mixed / TERMS_PATH)
    name = released(tmp_path / "registry", mixed, shipped / "run")
    kept = Adapter.open(f"{tmp_path}/registry/{ADAPTERS_FOLDER}/{name}")
    with pytest.raises(SettingsError, match="has term vectors"):
        load_initial_head(kept, TENANT, kept.base, "linear")


def test_a_row_says_what_it_is_from(shipped: Path, tmp_path: Path) -> None:
    released(tmp_path, shipped / "adapter", shipped / "run")
    (row,) = AdapterRegistry(str(tmp_path)).rows()
    facts = Adapter.open(str(shipped / "adapter")).facts
    assert (row["tenant"], row["prompt"], row["data"], row["weights"]) == (
        TENANT,
        "ask ",
        facts["data"],
        facts["weights"],
    )
    assert row["base"].startswith("model@files-")
    assert row["index"] == str(shipped / "run")


def test_what_is_not_shipped_or_does_not_fit_takes_a_reason(shipped: Path, tmp_path: Path) -> None:
    root, run = tmp_path / "registry", shipped / "run"
    base = again(shipped / "adapter", tmp_path / "base", "c" * 16, shipped="base", reason="undecided")
    with pytest.raises(NoLift, match="contains only the base encoder: undecided"):
        released(root, base, run)
    touched = again(shipped / "adapter", tmp_path / "touched", "d" * 16, weights="0")
    with pytest.raises(DoesNotFit, match="files of the adapter"):
        released(root, touched, run)
    assert not root.exists()
    released(root, base, run, "a trial week")
    (entry,) = AdapterRegistry(str(root)).history
    assert entry["forced"].startswith("a trial week (")
    assert "undecided" in entry["forced"]


def test_a_damaged_copy_is_not_gone_back_to(shipped: Path, tmp_path: Path) -> None:
    root, run = tmp_path / "registry", shipped / "run"
    first = released(root, shipped / "adapter", run)
    released(root, again(shipped / "adapter", tmp_path / "second", "b" * 16), run)
    Store(str(root)).write(f"{ADAPTERS_FOLDER}/{first}/{ENCODER_FOLDER}/modules.json", b"[]")
    with pytest.raises(ArtifactError, match="is damaged; release that adapter again"):
        AdapterRegistry(str(root)).rollback(TENANT)
    assert states(root)["b" * 16] == "released"
    written = (root / REGISTRY_FILE).read_bytes()
    (root / REGISTRY_FILE).write_bytes(written.replace(b"acme", b"evil"))
    with pytest.raises(ArtifactError, match=r"registry\.json is damaged"):
        AdapterRegistry(str(root))


def test_an_id_that_leads_elsewhere_is_refused(shipped: Path, tmp_path: Path) -> None:
    hostile = again(shipped / "adapter", tmp_path / "hostile", "../../elsewhere")
    with pytest.raises(ArtifactError, match="is not an adapter id"):
        released(tmp_path / "registry", hostile, shipped / "run")
