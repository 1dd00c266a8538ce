"""What is worse than what is live, for its own tenant or for one that it is shared with, does not go live."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from darklode.flows import open_systems
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.errors import DoesNotFit, NoLift
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, ResamplingSettings, compare_paired
from darklode.pipeline.serve.adapter_check import AdapterCheck
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.serve.release_gate import MARGIN, LiveAdapters, fall_summary, learned_queries, require_no_loss
from darklode.pipeline.train.release.adapter import ADAPTER_FOLDER, HEAD_FILE, RECORD_FILE, Adapter, weights_hash
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import CacheSettings, Settings
from helpers.adapted import TENANT, model_in, of_tenants

OTHER = "birch"


@pytest.fixture(scope="module")
def both(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the adapter's tenant and of another one, by the adapter's base."""
    run = of_tenants(tmp_path_factory.mktemp("both"), {TENANT: "", OTHER: "gupa"})
    cache = CacheSettings(root=str(shipped / "cache"))
    encoders = {"tiny": model_in(shipped).model_dump(mode="json")}
    write_run(run, BenchmarkInputs(docs="docs", queries="queries"), Settings(cache=cache, encoders=encoders))
    return run


def head(like: Path, to: Path, weight: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Path:
    """A light adapter of one layer, which says of itself what another one does."""
    store = Store(str(to))
    store.write(HEAD_FILE, save({"0.weight": weight, "0.bias": np.zeros(len(weight), np.float32)}))
    facts = json.loads((like / RECORD_FILE).read_text()) | {"id": "e" * 16, "form": "head"}
    store.write(RECORD_FILE, json.dumps(facts | {"weights": weights_hash(store, ADAPTER_FOLDER)}).encode())
    store.write("inputs.json", (like / "inputs.json").read_bytes())
    return to


@contextmanager
def against(adapter: Path, run: Run, registry: Path, *shared: str) -> Iterator[tuple[AdapterCheck, list[LiveAdapters]]]:
    with (
        open_systems.open_adapter_check(str(adapter), run.store.url) as check,
        open_systems.live_adapters(check, AdapterRegistry(str(registry)), shared) as rivals,
    ):
        yield check, rivals


def test_a_first_adapter_has_no_rival_and_a_worse_one_is_refused(shipped: Path, both: Run, tmp_path: Path) -> None:
    live, registry = shipped / "adapter", tmp_path / "adapters"
    with against(live, both, registry) as (check, rivals):
        assert rivals == []
        AdapterRegistry(str(registry)).release(check, "the run is another one", rivals)
    with against(live, both, registry) as (_, rivals):
        assert rivals == [], "itself"
    turned = head(live, tmp_path / "turned", -np.eye(8, dtype=np.float32))
    with against(turned, both, registry) as (check, rivals):
        (rival,) = rivals
        with pytest.raises(NoLift, match=f"tenant {TENANT} would fall by more than .* against the live adapter"):
            require_no_loss(rival)
        with pytest.raises((NoLift, DoesNotFit)):
            AdapterRegistry(str(registry)).release(check, None, rivals)
    assert AdapterRegistry(str(registry)).live == {TENANT: [Adapter.open(str(live)).id]}


def test_a_guard_tenant_that_falls_is_named_and_one_that_stays_passes(shipped: Path, both: Run, tmp_path: Path) -> None:
    for place, (weight, falls) in enumerate([(-np.eye(8), True), (np.eye(8), False)]):
        adapter = head(shipped / "adapter", tmp_path / f"{place}", weight.astype(np.float32))
        with against(adapter, both, tmp_path / "adapters", "all") as (_, (rival,)):
            assert (rival.index.tenant, rival.live_name) == (OTHER, "the base")
            if not falls:
                require_no_loss(rival)
                continue
            with pytest.raises(
                NoLift, match=f"tenant {OTHER} may fall by more than .* against the base on 16 test queries"
            ):
                require_no_loss(rival)


def test_a_shared_adapter_is_live_for_each_and_refused_elsewhere(shipped: Path, both: Run, tmp_path: Path) -> None:
    live, registry = shipped / "adapter", tmp_path / "adapters"
    with against(live, both, registry, OTHER) as (check, rivals):
        name = AdapterRegistry(str(registry)).release(check, "a trial week", rivals)
    kept = AdapterRegistry(str(registry))
    assert kept.live == {TENANT: [name], OTHER: [name]}
    assert [(row["tenant"], row["state"]) for row in kept.rows()] == [(TENANT, "released"), (OTHER, "released")]
    with open_systems.open_index(both.store.url, OTHER, [Adapter.open(kept.folder(name))]) as (index, _):
        assert index.tenant == OTHER
    opened = open_systems.open_index(both.store.url, OTHER, [Adapter.open(str(live))])
    with pytest.raises(DoesNotFit, match=f"is for tenant {TENANT}, not for {OTHER}"), opened:
        pass
    assert kept.rollback(OTHER) is None
    assert AdapterRegistry(str(registry)).live == {TENANT: [name], OTHER: []}


def test_a_fall_that_is_not_shown_is_called_possible_and_its_bound_is_one() -> None:
    def summary(differences: list[float]) -> str:
        values = np.array(differences)[:, None]
        row = compare_paired(values + MARGIN, np.zeros_like(values), np.arange(len(values)), ResamplingSettings()).row(
            0
        )
        return fall_summary(row)

    undecided = summary([0.1] * 10 + [-0.3] * 2)
    assert undecided.startswith("may fall by more than 0.01, which interval and p (at most 0.05) must exclude: ")
    assert "nDCG@10 +0.033 (-1.000 to " in undecided
    assert "p 0.367)" in undecided
    assert summary([-0.1, -0.2] * 6).startswith("would fall by more than 0.01: nDCG@10 -0.150 (-0.179 to -0.121, ")


def test_what_was_learned_from_shows_nothing(shipped: Path, both: Run) -> None:
    learned = learned_queries([Adapter.open(str(shipped / "adapter"))])
    assert learned == sorted(set(learned))
    assert len(learned) == 39
    tests = both.tables("queries").sql("SELECT text FROM queries WHERE split = 'test'")["text"].to_pylist()
    with against(shipped / "adapter", both, shipped / "none", OTHER) as (_, (rival,)):
        known = LiveAdapters(rival.index, rival.new, rival.old, rival.live_name, tests)
        with pytest.raises(NoLift, match=f"tenant {OTHER} has no labelled test queries"):
            require_no_loss(known)
        few = LiveAdapters(rival.index, rival.old, rival.old, rival.live_name, tests[: -MIN_CLUSTERS + 1])
        with pytest.raises(NoLift, match=r"too few test queries to decide .* form 9 clusters, at least 10 are needed"):
            require_no_loss(few)
