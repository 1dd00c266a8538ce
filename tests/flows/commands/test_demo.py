"""The sample that comes with the package is built by one command."""

from pathlib import Path

import pytest

from darklode.flows.commands.demo import sample_folder
from helpers.commands import DARKLODE, Environment, built
from helpers.runs import SAMPLE

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_the_demo_builds_the_sample(copied: Path, served: Environment) -> None:
    """Every stage stands: what it reads is what the sample's run was made from."""
    printed = built([DARKLODE, "demo", "--out", str(copied)], served)
    assert printed.count(" up to date\n") == 14
    assert f" {copied}/report.html\n" in printed


def test_the_sample_is_the_repositorys() -> None:
    assert sample_folder().resolve() == SAMPLE.resolve()
