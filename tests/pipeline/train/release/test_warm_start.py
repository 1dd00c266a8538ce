"""A night begins with the last one's head, knows what it learned from, and a second one changes nothing."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from darklode.flows import open_systems
from darklode.flows.jobs.adapt_encoder import adapt_encoder
from darklode.flows.runs import read_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DoesNotFit, NoLift, SettingsError
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.train.fit.heads import Head, add_residual, dense
from darklode.pipeline.train.release.adapter import RECORD_FILE, Adapter
from darklode.pipeline.train.release.warm_start import load_initial_head
from helpers.adapted import TENANT, build_to_adapt, model_in, shipped_adapter
from helpers.runs import read

QUICK = {"adapt": {"max_steps": 20, "batch_size": 16, "learning_rates": [1e-3]}}


@pytest.mark.parametrize("layers", [1, 3])
def test_what_was_added_is_found_again(layers: int) -> None:
    draws = np.random.default_rng(0)
    weights = [(draws.normal(size=(4, 4)).astype("f"), draws.normal(size=4).astype("f")) for _ in range(layers)]
    for mine, found in zip(Head.from_layers(weights).weights(), add_residual(dense(weights)), strict=True):
        np.testing.assert_allclose(mine[0], found[0], atol=1e-6)
        np.testing.assert_array_equal(mine[1], found[1])


def night(shipped: Path, out: Path, registry: Path) -> dict[str, bytes]:
    """One night's adapter; its tables and record."""
    with pytest.raises(NoLift):
        adapt_encoder([str(shipped / "run")], "tiny", str(out), QUICK, warm_start=str(registry))
    return {str(path): path.read_bytes() for path in [*(out / "tables").rglob("*.parquet"), out / RECORD_FILE]}


@pytest.mark.slow
def test_a_night_begins_with_the_last_one_and_a_second_one_changes_nothing(shipped: Path, tmp_path: Path) -> None:
    live, registry, out = shipped / "adapter", tmp_path / "adapters", tmp_path / "out"
    with open_systems.open_adapter_check(str(live), str(shipped / "run")) as check:
        AdapterRegistry(str(registry)).release(check, None)
    first = night(shipped, out, registry)
    run, facts = Run(str(out)), Adapter.open(str(out)).facts
    assert set(Adapter.open(str(live)).facts["learned"]) <= set(facts["learned"])
    cold = tmp_path / "cold"
    with pytest.raises(NoLift):
        adapt_encoder([str(shipped / "run")], "tiny", str(cold), QUICK)
    begins, base = (read(one, "training_log")[0]["spread"] for one in (run, Run(str(cold))))
    assert begins != base, "the first look is the last night's head, not the base"
    assert all(row["shares_positive"] for row in read(run, "adaptation_queries") if row["split"] == "train")

    with open_systems.open_adapter_check(str(out), str(shipped / "run")) as check:
        AdapterRegistry(str(registry)).release(check, "it is live from now on")
    assert AdapterRegistry(str(registry)).live[TENANT][-1] == facts["id"]
    assert night(shipped, out, registry) == first, "the same rows: nothing is learned twice"


@pytest.mark.slow
def test_heads_start_from_the_base_if_a_whole_encoder_is_live(tmp_path: Path) -> None:
    live = shipped_adapter(tmp_path, build_to_adapt(tmp_path / "run"), method="full").store.url
    with open_systems.open_adapter_check(live, str(tmp_path / "run")) as check:
        AdapterRegistry(str(tmp_path / "adapters")).release(check, "it is live from now on")
    night(tmp_path, tmp_path / "out", tmp_path / "adapters")
    assert read_inputs(Run(str(tmp_path / "out"))).model_dump()["warm_start"] == ""
    with pytest.raises(SettingsError, match=r"is not a linear head, .* leave out --warm-start"):
        night(tmp_path, tmp_path / "other", Path(live))


@pytest.mark.slow
def test_a_held_out_query_that_was_learned_before_decides_nothing(shipped: Path, tmp_path: Path) -> None:
    asked = next(
        row for row in read(Run(str(shipped / "adapter")), "adaptation_queries") if row["query_id"] == "test-003"
    )
    assert not asked["shares_positive"]
    before = Path(shutil.copytree(shipped / "adapter", tmp_path / "before"))
    facts = json.loads((before / RECORD_FILE).read_text())
    (before / RECORD_FILE).write_text(json.dumps(facts | {"learned": [f"{asked['text']}?"]}))
    night(shipped, tmp_path / "out", before)
    shares = {row["query_id"]: row["shares_positive"] for row in read(Run(str(tmp_path / "out")), "adaptation_queries")}
    assert (shares["test-003"], shares["test-004"]) == (True, False)


def test_what_cannot_be_begun_with_is_refused(shipped: Path) -> None:
    adapter, encoder = Adapter.open(str(shipped / "adapter")), model_in(shipped)
    with pytest.raises(SettingsError, match=r"adapt\.method lora always starts from the base"):
        load_initial_head(adapter, TENANT, encoder, "lora")
    with pytest.raises(SettingsError, match="is not a ffn head, so ffn cannot start from it"):
        load_initial_head(adapter, TENANT, encoder, "ffn")
    with pytest.raises(DoesNotFit, match="belongs to the tenant acme, not to other"):
        load_initial_head(adapter, "other", encoder, "linear")
    with pytest.raises(DoesNotFit, match="has another base: query prompt"):
        load_initial_head(adapter, TENANT, encoder.model_copy(update={"query_prompt": "find "}), "linear")
