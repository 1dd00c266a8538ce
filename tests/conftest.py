"""Fixtures of all tests."""

import os
import tempfile
from pathlib import Path

import hypothesis
import pytest

from darklode.pipeline.base.artifacts import Run

PREFECT_HOME = tempfile.TemporaryDirectory(prefix="darklode-prefect-")
os.environ |= {  # before anything imports Prefect: flows in this process never meet the user's own profile
    "PREFECT_HOME": PREFECT_HOME.name,
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "DO_NOT_TRACK": "1",
    "DARKLODE_PRESET": "embedded",  # what most users have; the encoder that tests install would judge slowly
}

hypothesis.settings.register_profile("darklode", deadline=None)  # a busy machine is no mistake of the code
hypothesis.settings.load_profile("darklode")

pytest_plugins = ["helpers.browser", "helpers.flow_fixtures", "helpers.s3_bucket"]


FIRST = ("tests/flows/commands/test_build.py", "tests/flows/commands/test_mine.py")
SHARED_RUNS = {"sample_run", "mined_run"}


@pytest.hookimpl(trylast=True)  # after pytest-randomly
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files so that two processes wait for each other as little as possible.

    First the two that make the runs which others share; those others after the rest of the flows, when the runs are
    finished; the many short files of the pipeline last, so that both processes end at the same time.
    """
    readers = {item.path for item in items if SHARED_RUNS & set(getattr(item, "fixturenames", ()))}

    def position(item: pytest.Item) -> int:
        if item.nodeid.startswith(FIRST):
            return 0
        return 3 if item.nodeid.startswith("tests/pipeline/") else 2 if item.path in readers else 1

    items.sort(key=position)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(str(tmp_path / "run"))
