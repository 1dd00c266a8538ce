"""adapt-encoder on a whole run: what it leaves, what stands, and what it refuses."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.jobs.adapt_encoder import adapt_encoder, restore_weights, steps
from darklode.flows.jobs.adapt_tenants import adapt_tenants
from darklode.flows.runs import read_run, read_settings, write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.verify import verify
from darklode.pipeline.base.errors import ArtifactError, MissingPart, NoLift, SettingsError
from darklode.pipeline.train.fit.encoder_methods import EncoderMethod
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.release.folder import needs_weights
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.adapted import base_for, build_to_adapt, judged_by, model_in, settings_for, shipped_adapter

QUICK: dict[str, Any] = {"adapt": {"max_steps": 50, "batch_size": 16, "learning_rates": [3e-4]}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build and a model."""
    root = tmp_path_factory.mktemp("adapting")
    build_to_adapt(root / "run")
    model_in(root)
    return root


def ended(runs: list[str], model: str, out: str, settings: dict[str, Any]) -> str:
    """What is said at the end, whichever encoder is handed over."""
    try:
        return adapt_encoder(runs, model, out, settings)
    except NoLift as error:
        return str(error)


def contents(folder: Path) -> dict[str, bytes]:
    """Every table, the folder that one takes home, and the card."""
    found = [folder / "README.md", *(folder / "tables").rglob("*"), *(folder / "query_encoder").rglob("*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.is_file()}


def test_it_ends_with_a_folder_a_card_and_a_reason_and_then_stands(root: Path) -> None:
    runs, model, out = [str(root / "run")], str(root / "model"), str(root / "out")
    told = adapt_encoder(runs, model, out, QUICK, dry_run=True)
    assert "15 test queries in 15 clusters decide" in told
    assert not (root / "out" / "query_encoder").exists()
    said = ended(runs, model, out, QUICK)
    assert (root / "out" / "query_encoder" / "modules.json").exists()
    card = (root / "out" / "README.md").read_text()
    assert "by cross-validation, 5 folds of clusters, on 51 train and validation queries" in card
    assert "In hybrid search, against BM25 + base" in said
    before = contents(root / "out")
    assert ended(runs, model, out, QUICK) == said
    assert contents(root / "out") == before


@pytest.mark.slow
def test_weights_of_a_whole_encoder_are_deleted_and_trained_again_only_if_needed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, trainings = EncoderMethod.fit, list[float]()
    monkeypatch.setattr(EncoderMethod, "fit", lambda *of: trainings.append(of[2]) or fit(*of))
    runs, model, out = [str(root / "run")], str(root / "model"), str(tmp_path / "out")
    chosen = {"adapt": QUICK["adapt"] | {"method": "full", "max_steps": 10, "init": "base"}}
    said, run = ended(runs, model, out, chosen), Run(out)
    tables = ("adapter_weights", "control_weights")
    assert [run.tables(name).rows(name) for name in tables] == [0, 0]
    weights = sum(sum(run.store.sizes(f"tables/{name}").values()) for name in tables)
    assert weights < 5_000 < (run.store.size("query_encoder/model.safetensors") or 0)
    before, manifests = contents(tmp_path / "out"), run.manifests_hash()
    assert "Method: full, 0 parameters" not in before["README.md"].decode()
    assert ended(runs, model, out, chosen) == said
    assert (contents(tmp_path / "out"), run.manifests_hash()) == (before, manifests)
    assert not [check.problem for check in verify(run) if check.problem]
    n_trainings, resampled = len(trainings), chosen | {"evaluate": {"n_resamples": 500}}
    ended(runs, model, out, resampled)
    assert len(trainings) == n_trainings
    rankings = max(run.store.sizes("tables/test_rankings"))
    run.store.delete(rankings)
    ended(runs, model, out, resampled)
    assert run.store.read(rankings), "the same weights rank as before"
    assert [run.tables(name).rows(name) for name in tables] == [0, 0]
    assert len(trainings) == 2 * n_trainings


@pytest.mark.slow
def test_a_deleted_encoder_is_trained_again(tmp_path: Path) -> None:
    out = shipped_adapter(tmp_path, build_to_adapt(tmp_path / "run"), method="full")
    assert out.is_cleared(TRAIN_STAGE, "adapter_weights")
    base = base_for(Run(str(tmp_path / "run")), root=tmp_path)
    assert not needs_weights(out, base)
    out.store.delete("query_encoder/model.safetensors")
    assert needs_weights(out, base)
    assert restore_weights(out, steps(base, read_settings(out)))
    assert out.tables("adapter_weights").rows("adapter_weights")
    assert not restore_weights(out, steps(base, read_settings(out)))


@pytest.mark.slow
def test_labels_of_a_judge_with_the_base_encoder_are_a_warning(root: Path) -> None:
    judged_by(build_to_adapt(root / "judged"), model_in(root))
    said = ended([str(root / "judged")], str(root / "model"), str(root / "biased"), QUICK)
    warning = "The labels come from an encoder judge with the model model, which the measured encoder model shares"
    assert warning in said
    assert f"> **Warning:** {warning}" in (root / "biased" / "README.md").read_text()
    assert "The labels favour the base encoder" in (root / "biased" / "report.html").read_text()
    assert json.loads((root / "biased" / "adapter.json").read_text())["label_bias"].startswith(warning)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ffn", "closed_form"])
def test_every_method_ends_in_a_verdict(root: Path, method: str) -> None:
    chosen = {"adapt": QUICK["adapt"] | {"method": method}}
    said = ended([str(root / "run")], str(root / "model"), str(root / method), chosen)
    assert "query_encoder is " in said
    run = Run(str(root / method))
    assert run.tables("adapter_weights").rows("adapter_weights") == {"ffn": 3 * 9, "closed_form": 9}[method]
    assert run.tables("training_log").rows("training_log") == (2 if method == "ffn" else 0)


def test_a_folder_with_something_else_is_refused(root: Path) -> None:
    with pytest.raises(ArtifactError, match=r"holds a benchmark \(`darklode build`\); choose another --out"):
        adapt_encoder([str(root / "run")], str(root / "model"), str(root / "run"))


def test_no_other_command_takes_it_for_a_run(root: Path, tmp_path: Path) -> None:
    adapt_encoder([str(root / "run")], str(root / "model"), str(tmp_path), QUICK, dry_run=True)
    with pytest.raises(ArtifactError, match=r"holds an adapted encoder \(`darklode adapt`\), not a run"):
        read_run(Run(str(tmp_path)))


def test_an_encoder_whose_weights_are_elsewhere_is_refused(root: Path, tmp_path: Path) -> None:
    served = {"kind": "openai", "model": "any", "base_url": "http://127.0.0.1:9/v1"}
    onnx = {"kind": "fastembed", "model": "BAAI/bge-small-en-v1.5"}
    for name, encoder in (("far", served), ("small", onnx)):
        with pytest.raises(SettingsError, match=rf"encoders\.{name} is of kind {encoder['kind']}; .* such as the same"):
            adapt_encoder([str(root / "run")], name, str(tmp_path / "out"), {"encoders": {name: encoder}})


@pytest.mark.slow
@pytest.mark.parametrize("tenants", [False, True])
def test_a_judge_without_its_key_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenants: bool
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    judge = {"kind": "llm", "model": "any", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "NO_SUCH_KEY"}
    source, model, out = build_to_adapt(tmp_path / "run"), model_in(tmp_path).model, str(tmp_path / "out")
    settings = settings_for(tmp_path).model_dump(mode="json") | {"judge": judge}
    write_run(source, BenchmarkInputs(docs="docs", queries="queries"), Settings.model_validate(settings))
    adapt = adapt_tenants if tenants else adapt_encoder
    with pytest.raises(MissingPart, match=r"judge llm: .*NO_SUCH_KEY.*--set adapt\.unjudged_budget=0"):
        adapt([source.store.url], model, out, settings=QUICK)
    assert not {"adapter_weights", "adapted_tenants"} & {path.name for path in (tmp_path / "out/tables").glob("*")}
    with suppress(NoLift):
        adapt([source.store.url], model, out, settings={"adapt": QUICK["adapt"] | {"unjudged_budget": 0}})
    assert (tmp_path / "out/tables" / ("adapted_tenants" if tenants else "adapter_weights")).exists()
