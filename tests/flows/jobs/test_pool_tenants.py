"""adapt-tenants with pooling: nothing is shared unless asked for, and what is shared is recorded."""

import json
from pathlib import Path

import numpy as np
import pytest

from darklode.flows.jobs.adapt_tenants import adapt_tenants
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import NoLift, SettingsError
from darklode.pipeline.train.release import pooled_tenants
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.pooled_evidence import PooledEvidence
from helpers.adapted import model_in, of_tenants, word
from helpers.runs import read

SIDES = {"train": 8, "validation": 4, "test": 4}
FAST = {"adapt": {"method": "closed_form"}}
WORDS = {f"tenant-{number}": word(500 + number) for number in range(11)}


def adapt(root: Path, *, pool: bool) -> Run:
    with pytest.raises(NoLift, match="11 tenants: 0 adapted"):
        adapt_tenants([str(root / "both")], str(root / "model"), str(root / "out"), settings=FAST, pool_tenants=pool)
    return Run(str(root / "out"))


def of_tenant(run: Run, tenant: str) -> Run:
    return Run(f"{run.store.url}/tenants/{tenant}")


@pytest.mark.slow
def test_pooling_is_asked_for_recorded_and_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_tenants(tmp_path, WORDS, SIDES)
    model_in(tmp_path)
    alone = adapt(tmp_path, pool=False)
    assert not [table for table in ("pooled_head", "pooled_tenants") if (tmp_path / "out/tables" / table).exists()]
    own = {tenant: of_tenant(alone, tenant).tables("adapter_weights").content("adapter_weights") for tenant in WORDS}
    records = {tenant: Adapter.open(of_tenant(alone, tenant).store.url).facts for tenant in WORDS}
    assert {facts["pooled"] for facts in records.values()} == {None}

    real = pooled_tenants.decide_pooled_release

    def released_for_all(*arguments: object) -> PooledEvidence:
        evidence = real(*arguments)  # type: ignore[arg-type]
        return PooledEvidence(**{**vars(evidence), "released": np.ones(len(evidence.released), bool)})

    monkeypatch.setattr(pooled_tenants, "decide_pooled_release", released_for_all)
    settings = {"settings": FAST, "pool_tenants": True}
    adapt_tenants([str(tmp_path / "both")], str(tmp_path / "model"), str(tmp_path / "out"), **settings)  # type: ignore[arg-type]
    assert own == {
        tenant: of_tenant(alone, tenant).tables("adapter_weights").content("adapter_weights") for tenant in WORDS
    }
    rows = {row["tenant"]: row for row in read(alone, "pooled_tenants")}
    assert all(row["released"] and row["clusters"] > 0 for row in rows.values())
    for tenant, row in rows.items():
        folder = of_tenant(alone, tenant)
        adapter = Adapter.open(folder.store.url)
        assert adapter.ships
        assert adapter.facts["shipped"] == "pooled"
        assert adapter.facts["pooled"]["tenants"] == len(WORDS)
        assert f"own evidence: {row['clusters']} test clusters" in adapter.facts["reason"]
        text = (tmp_path / "out/tenants" / tenant / "adapter.json").read_text()
        others = [other for other in WORDS if other != tenant and (f'"{other}"' in text or f"{WORDS[other]} " in text)]
        assert not others, "a tenant's folder names no other tenant, and has none of its queries"
        assert np.allclose(np.linalg.norm(adapter.encode(["what is it"]), axis=1), 1, atol=1e-5)
    assert "trained on queries and labels of all these tenants" in (tmp_path / "out/README.md").read_text()
    before = (tmp_path / "out/tenants/tenant-0/adapter.json").stat().st_mtime_ns
    adapt_tenants([str(tmp_path / "both")], str(tmp_path / "model"), str(tmp_path / "out"), **settings)  # type: ignore[arg-type]
    assert (tmp_path / "out/tenants/tenant-0/adapter.json").stat().st_mtime_ns == before, "nothing is done again"

    again = adapt(tmp_path, pool=False)
    assert not (tmp_path / "out/tables/pooled_tenants").exists()
    after = {tenant: Adapter.open(of_tenant(again, tenant).store.url).facts for tenant in WORDS}
    assert {tenant: facts["id"] for tenant, facts in after.items()} == {
        tenant: facts["id"] for tenant, facts in records.items()
    }
    assert json.dumps(after, sort_keys=True) == json.dumps(records, sort_keys=True)


def test_pooling_does_not_start_from_a_live_adapter() -> None:
    with pytest.raises(SettingsError, match="leave out --warm-start"):
        adapt_tenants([], "any", "out", warm_start="adapters", pool_tenants=True)
