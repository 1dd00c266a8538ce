"""Building from Python where an event loop runs, as in Jupyter, with a Prefect server and with a judge on a server."""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import darklode
from helpers.commands import Environment
from helpers.fake_chat import FakeChat
from helpers.judge_commands import KEY, write_source
from helpers.runs import SAMPLE

pytestmark = pytest.mark.server

IN_A_LOOP = """
import asyncio, gc, json, sys, darklode

async def main():
    result = darklode.build(**json.loads(sys.argv[1]))
    gc.collect()
    print(json.dumps({name: len(rows) for name, rows in result.figures.items()}), len(result.tables))

asyncio.run(main())
"""


def build_in_a_loop(environment: Environment, **arguments: object) -> str:
    """Build in a running event loop, in a process where any warning fails; returns what it printed."""
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", IN_A_LOOP, json.dumps(arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=dict(environment))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_prefect_server_is_used_in_a_running_event_loop(tmp_path: Path, served: Environment) -> None:
    docs = str(SAMPLE / "documents" / "pelagia" / "api")
    figures, n_tables = build_in_a_loop(served, docs=docs, queries=str(SAMPLE), out=str(tmp_path / "run")).rsplit(
        maxsplit=1
    )
    assert (figures, int(n_tables) > 15) == ("{}", True)


@pytest.mark.slow
def test_judging_is_estimated_in_a_running_event_loop(tmp_path: Path, alone: Environment) -> None:
    source = write_source(tmp_path / "source")
    with FakeChat(model="judge", key=KEY) as server:
        judge = {"kind": "llm", "model": "judge", "base_url": server.url, "api_key_env": "JUDGE_KEY"}
        environment = dict(alone) | {"JUDGE_KEY": KEY, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        inputs = {"docs": str(source / "docs"), "queries": str(source / "queries.txt"), "out": str(tmp_path / "run")}
        printed = build_in_a_loop(
            environment, **inputs, estimate=True, keep_all_queries=True, settings={"judge": judge}
        )
    assert printed.startswith('{"Estimated judging: judge": ')


def test_days_are_given_as_one_or_as_a_range(tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="either `date` for one day, or `from_` and `to`"):
        darklode.mine(SAMPLE, SAMPLE, tmp_path, from_=date(2026, 3, 1))
    with pytest.raises(darklode.DarklodeError, match="either `date`"):
        darklode.mine(SAMPLE, SAMPLE, tmp_path, date=date(2026, 3, 1), to=date(2026, 3, 2))


def test_judgments_need_no_judge(tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="nothing"):
        darklode.build(SAMPLE, SAMPLE, tmp_path / "run", qrels=tmp_path / "nothing")
