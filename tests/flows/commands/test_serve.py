"""darklode serve: an address to ask, no trace in the index, and its end."""

import http.client
import json
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helpers.commands import DARKLODE, Call, one_line
from helpers.indexed import fitting


@pytest.mark.slow
def test_an_index_is_served_until_it_is_told_to_end(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "index", tmp_path / "scratch"
    for one in (folder, scratch):
        one.mkdir()
    command = [DARKLODE, "serve", fitting(folder), "--port", "0"]
    before = sorted(folder.rglob("*"))
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        url = urlsplit(next(line.strip() for line in process.stdout if line.startswith("http://")))
        with closing(http.client.HTTPConnection(url.netloc, timeout=60)) as connection:
            connection.request("POST", f"{url.path}search", json.dumps({"query": "anything"}).encode())
            assert len(json.loads(connection.getresponse().read())["hits"]) == 10
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 0
    assert list(scratch.iterdir()) == []
    assert sorted(folder.rglob("*")) == before


def test_what_cannot_be_served_is_one_line(indexed: Path, tmp_path: Path, call: Call) -> None:
    one_line(call("serve", tmp_path / "nothing"), "holds no run")
    one_line(call("serve", indexed / "index"), "expected query vectors of 32 numbers, got shape .1, 8.", 3)
    one_line(
        call("serve", indexed / "index", "--encoder", "bse"), "model sentence-transformers/bse is not in the local"
    )
    one_line(call("serve", indexed / "index", "--host", "0.0.0.0"), "requires --allow-host", 2)
