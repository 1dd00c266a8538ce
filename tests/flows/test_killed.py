"""kill -9 in the middle of every stage: the same command goes on, and the tables are those of an undisturbed run."""

import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from commands import Environment, SampleRun, build_command, built, tables_of, wait_for

from conftest import SAMPLE
from flows.build_benchmark import steps
from flows.config import load_settings
from pipeline.artifacts import Run

pytest_plugins = ["flow_fixtures"]
pytestmark = pytest.mark.server

# How far into a stage, as a share of the time that it takes undisturbed; the next one is tried where that was too late.
MOMENTS = (0.7, 0.4, 0.0)


def killed_in(stage: str, seconds: float, folder: Path, environment: Environment) -> bool:
    """Start the build, kill it `seconds` after the stage has begun; whether the stage was still unfinished then."""
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(build_command(folder), env=environment, stdout=output, stderr=output)
    begun = f"{stage}: ".encode()
    try:
        wait_for(lambda: any(line.startswith(begun) for line in log.read_bytes().splitlines()), f"the stage {stage}")
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, log.read_text()
    manifest = folder / "manifests" / f"{stage}.json"
    if manifest.exists():
        manifest.unlink()
        return False
    return True


def killed_in_each(stages: Mapping[str, float], folder: Path, environment: Environment) -> str:
    """Kill a build in one stage after the other, then let it come to its end; returns what it printed at last."""
    for number, (stage, seconds) in enumerate(stages.items()):
        moments = [share * seconds for share in MOMENTS[number % 2 :]]
        assert any(killed_in(stage, moment, folder, environment) for moment in moments), f"{stage} was always complete"
    return built(build_command(folder), environment)


def test_killed_in_every_stage(sample_run: SampleRun, served: Environment, tmp_path: Path) -> None:
    undisturbed = Run(str(sample_run.folder)).manifests()
    stages = [step.stage.name for step in steps(str(SAMPLE), str(SAMPLE), load_settings())]
    assert set(stages) == undisturbed.keys() - {"funnel"}
    chains = {tmp_path / f"run{n}": {name: undisturbed[name].seconds for name in stages[n::2]} for n in range(2)}
    with ThreadPoolExecutor() as pool:
        printed = list(pool.map(lambda folder: killed_in_each(chains[folder], folder, served), chains))
    for folder, text in zip(chains, printed, strict=True):
        assert "\n✓ triplets " in text
        assert tables_of(folder) == tables_of(sample_run.folder)
        assert not [path for path in (folder / "progress").rglob("*") if path.is_file()]


@pytest.mark.parametrize("moment", ["while the server starts", "in a stage"])
def test_no_server_outlives_a_killed_command(alone: Environment, tmp_path: Path, moment: str) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(build_command(tmp_path / "run"), env=alone, stdout=output, stderr=output)
    family: list[psutil.Process] = []
    try:
        wait_for(lambda: family.extend(psutil.Process(process.pid).children(recursive=True)) or family, "a server")
        if moment == "in a stage":
            wait_for(lambda: b"clean: " in log.read_bytes(), "the stage clean")
            family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert any("flows.server" in " ".join(one.cmdline()) for one in family), family
    _, left = psutil.wait_procs(family, timeout=5)
    for one in left:
        one.kill()
    assert not left
