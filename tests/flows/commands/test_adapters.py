"""darklode adapters: release, list and rollback on the command line."""

import json
from pathlib import Path

from helpers.adapted import build_to_adapt
from helpers.commands import Call, one_line


def test_an_adapter_goes_live_and_back(shipped: Path, tmp_path: Path, call: Call) -> None:
    place = ("--registry", tmp_path / "adapters")
    shown = call("adapters", "release", shipped / "adapter", "--index", shipped / "run", *place)
    assert (shown.code, shown.err) == (0, "")
    assert "is live for acme: " in shown.out
    told = json.loads(call("adapters", "list", *place, "--json").out)
    assert [(row["tenant"], row["state"]) for row in told["adapters"]] == [("acme", "released")]
    assert [row["action"] for row in told["history"]] == ["release"]
    assert "released" in call("adapters", "list", *place).out
    assert "The base encoder is live for acme." in call("adapters", "rollback", "acme", *place).out
    one_line(call("adapters", "rollback", "acme", *place), "no released adapter of tenant acme")


def test_headroom_is_of_one_tenant(shipped: Path, tmp_path: Path, call: Call) -> None:
    command = ("adapt", shipped / "run", "--encoder", shipped / "model", "--out", tmp_path / "out")
    one_line(call(*command, "--tenants", "all", "--dry-run"), "--dry-run supports one tenant", 2)


def test_another_tenants_index_is_refused_whatever_the_reason(shipped: Path, tmp_path: Path, call: Call) -> None:
    build_to_adapt(tmp_path / "run", tenant="other")
    command = ("adapters", "release", shipped / "adapter", "--index", tmp_path / "run", "--force", "we need it")
    one_line(call(*command, "--registry", tmp_path / "adapters"), "is for tenant acme, and", 3)
    assert not (tmp_path / "adapters").exists()
