"""darklode browse: an address, no trace in the run, and what it says where there is nothing."""

import http.client
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from darklode.flows.config import load_settings
from helpers.commands import DARKLODE, Call
from helpers.finished_run import finished_run


@pytest.mark.slow
def test_a_run_is_browsed_until_ctrl_c(tmp_path: Path) -> None:
    run = finished_run(str(tmp_path / "run"))
    run.store.write("settings.yaml", yaml.safe_dump(load_settings().model_dump(mode="json")).encode())
    run.store.write("inputs.json", b'{"kind": "benchmark", "docs": "docs", "queries": "queries"}')
    before = sorted(tmp_path.rglob("*"))
    command = [DARKLODE, "browse", str(tmp_path / "run"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    try:
        url = urlsplit(next(line.strip() for line in process.stdout if line.startswith("http://")))
        with closing(http.client.HTTPConnection(url.netloc, timeout=30)) as connection:
            connection.request("GET", url.path + "queries")
            assert b"reset" in connection.getresponse().read()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_a_run_is_refused(call: Call, tmp_path: Path) -> None:
    outcome = call("browse", tmp_path / "nothing")
    assert outcome.code == 1
    assert "holds no run" in outcome.err
