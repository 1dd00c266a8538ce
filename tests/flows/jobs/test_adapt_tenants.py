"""adapt-tenants: a folder, a verdict and a fingerprint for each tenant, from its rows alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from darklode.flows import open_systems
from darklode.flows.jobs import adapt_encoder as jobs
from darklode.flows.jobs.adapt_encoder import adapt_encoder
from darklode.flows.jobs.adapt_tenants import adapt_tenants
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DoesNotFit, NoLift, SettingsError
from darklode.pipeline.serve.adapter_check import require_fit
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.tenants import tenant_folder
from helpers.adapted import model_in, of_tenants
from helpers.runs import put, read

SIDES = {"train": 24, "validation": 12, "test": 12}
QUICK = {"adapt": {"max_steps": 20, "batch_size": 16, "learning_rates": [1e-2]}}
WORDS = {"acme": "", "../b": "gupa", "empty": "rogi"}


def adapted(root: Path) -> Path:
    """All tenants' heads, none of which is shown to lift; `root` holds the run and the model."""
    with pytest.raises(NoLift, match="3 tenants: 0 adapted, 2 with the base, 1 rejected"):
        adapt_tenants([str(root / "both")], str(root / "model"), str(root / "out"), settings=QUICK)
    return root / "out"


def two_of_three(root: Path, words: dict[str, str]) -> None:
    """Two tenants with rows to learn from, and one whose test queries nobody labelled."""
    run = of_tenants(root, words, SIDES)
    model_in(root)
    labels = run.tables("qrels").read("qrels")
    useless = pc.and_(pc.equal(labels["tenant"], "empty"), pc.starts_with(labels["query_id"], "test"))
    put(run, "qrels", labels.filter(pc.invert(useless)))


def decided(root: Path) -> dict[str, dict[str, Any]]:
    return {row["tenant"]: row for row in read(Run(str(root / "out")), "adapted_tenants")}


def contents(folder: Path) -> dict[str, bytes]:
    """All tables, heads and records."""
    kept = [*folder.rglob("*.parquet"), *folder.rglob("adapter.*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adapted once; nobody changes it."""
    root = tmp_path_factory.mktemp("tenants")
    two_of_three(root, WORDS)
    adapted(root)
    return root


@pytest.mark.slow
def test_each_tenant_has_a_verdict_and_bad_data_stops_nobody(root: Path) -> None:
    rows = decided(root)
    assert [(name, row["folder"]) for name, row in rows.items()] == [
        ("../b", "tenants/%2E%2E%2Fb"), ("acme", "tenants/acme"), ("empty", "tenants/empty"),
    ]  # fmt: skip
    assert rows["empty"]["shipped"] is None
    assert "no test query has a positive" in rows["empty"]["reason"]
    assert rows["acme"]["data"] != rows["../b"]["data"]
    facts = Adapter.open(str(root / "out" / tenant_folder("../b"))).facts
    assert (facts["tenant"], facts["form"], facts["data"]) == ("../b", "head", rows["../b"]["data"])
    assert not (root / "out" / "query_encoder").exists()


@pytest.mark.slow
def test_a_tenants_head_is_the_one_that_is_trained_alone(root: Path) -> None:
    alone = QUICK["adapt"] | {"tenant": "../b"}
    with pytest.raises(NoLift):
        adapt_encoder([str(root / "both")], str(root / "model"), str(root / "alone"), {"adapt": alone})
    one, among = Run(str(root / "alone")), Run(str(root / "out" / tenant_folder("../b")))
    for table in ("adapter_weights", "training_log", "adaptation_trials", "evaluation_pairs"):
        assert one.tables(table).content(table) == among.tables(table).content(table)
    facts = [json.loads((Path(run.store.url) / "adapter.json").read_text()) for run in (one, among)]
    assert facts[0]["data"] == facts[1]["data"]


@pytest.mark.slow
def test_nothing_is_done_again_and_a_killed_run_ends_with_the_same_bytes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_of_three(tmp_path, WORDS)
    real, calls = Run.execute, list[str]()

    def stops(run: Run, plan: Any, *rest: Any) -> Any:
        calls.append(plan.stage.name)
        if plan.stage.name == "adapter_verdict":
            raise KeyboardInterrupt
        return real(run, plan, *rest)

    monkeypatch.setattr(Run, "execute", stops)
    with pytest.raises(KeyboardInterrupt):
        adapted(tmp_path)

    def goes_on(run: Run, plan: Any, *rest: Any) -> Any:
        calls.append(plan.stage.name)
        return real(run, plan, *rest)

    monkeypatch.setattr(Run, "execute", goes_on)
    calls.clear()
    adapted(tmp_path)
    assert "adaptation_trials" not in calls
    before, calls[:] = contents(tmp_path / "out"), []
    adapted(tmp_path)
    assert (calls, contents(tmp_path / "out")) == ([], before)
    with monkeypatch.context() as upgraded:
        upgraded.setattr(jobs, "CONTROL_STAGE", replace(jobs.CONTROL_STAGE, version=99))
        adapted(tmp_path)
    assert {"adapted_tenants", "control_weights"} <= {*calls}, "another version of a tenant's stage"
    adapted(tmp_path)
    calls.clear()
    names = [name for name in before if "adapter_weights" in name]
    assert len(names) == 3
    assert {name: before[name] for name in names} == {name: contents(root / "out")[name] for name in names}


@pytest.mark.slow
def test_another_tenants_rows_change_neither_fingerprint_nor_weights(root: Path, tmp_path: Path) -> None:
    two_of_three(tmp_path, WORDS | {"../b": "tola"})
    adapted(tmp_path)
    mine, theirs = decided(root), decided(tmp_path)
    assert mine["acme"] | {"adapter": ""} == theirs["acme"] | {"adapter": ""}
    assert mine["../b"]["data"] != theirs["../b"]["data"]
    weights = [Run(str(one / "out/tenants/acme")).tables("adapter_weights") for one in (root, tmp_path)]
    assert len({one.content("adapter_weights") for one in weights}) == 1


@pytest.mark.slow
def test_a_head_fits_its_own_tenants_index_and_no_other(root: Path, tmp_path: Path) -> None:
    acme = str(root / "out" / tenant_folder("acme"))
    with open_systems.open_adapter_check(acme, str(root / "both")) as check:
        require_fit(check.adapter, check.index, list(check.findings()))
    other = of_tenants(tmp_path, {"../b": "gupa"}, SIDES)
    with (
        pytest.raises(DoesNotFit, match="is for tenant acme"),
        open_systems.open_adapter_check(acme, other.store.url),
    ):
        pass


@pytest.mark.slow
def test_what_makes_a_whole_encoder_is_refused(root: Path) -> None:
    with pytest.raises(SettingsError, match=r"adapt\.method lora trains a whole encoder per tenant"):
        adapt_tenants([str(root / "both")], "any", str(root / "lora"), settings={"adapt": {"method": "lora"}})
