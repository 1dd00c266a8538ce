"""Several processes of one training: who leads, whose device is which, and that orders come in turn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.train.fit import distributed
from helpers.environment import with_paths

TOLD = """
import json, os, sys
from darklode.pipeline.train.fit import distributed
if distributed.is_leader():
    for number in range(3):
        distributed.broadcast_work_item((number, "x"))
    distributed.broadcast_work_item(None)
else:
    open(sys.argv[1], "w").write(json.dumps(list(distributed.work_items())))
"""


def test_alone_one_leads_and_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)
    assert distributed.is_leader()
    assert not distributed.is_distributed()
    distributed.broadcast_work_item((1, "x"))
    distributed.wait_for_all()
    assert distributed.own_device(["cuda:0", "cuda:1"]) == "cuda:0"


def test_the_others_have_devices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert not distributed.is_leader()
    assert distributed.is_distributed()
    assert distributed.own_device(["cuda:0", "cuda:1"]) == "cuda:1"
    assert distributed.own_device(["cpu"]) == "cpu"
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert distributed.own_device(["cuda:0", "cuda:1"]) == "cpu"


@pytest.mark.parametrize("name", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_models_that_no_process_holds_whole_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "false")
    distributed.require_unsharded()
    monkeypatch.setenv(name, "true")
    with pytest.raises(SettingsError, match="each process needs both towers in full"):
        distributed.require_unsharded()


@pytest.mark.slow
def test_orders_come_in_turn_until_there_is_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(TOLD)
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    given = [*launched, str(tmp_path / "told.py"), str(tmp_path / "found.json")]
    subprocess.run(given, env=with_paths(), check=True, capture_output=True)
    assert json.loads((tmp_path / "found.json").read_text()) == [[0, "x"], [1, "x"], [2, "x"]]
