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
}

hypothesis.settings.register_profile("darklode", deadline=None)  # a busy machine is no mistake of the code
hypothesis.settings.load_profile("darklode")

pytest_plugins = ["helpers.browser", "helpers.flow_fixtures", "helpers.s3_bucket"]


@pytest.hookimpl(trylast=True)  # after pytest-randomly
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rooms of the pipeline last: theirs are the short files, which two processes end with at the same time."""
    items.sort(key=lambda item: item.nodeid.startswith("tests/pipeline/"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(str(tmp_path / "run"))
