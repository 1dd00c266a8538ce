"""kill -9 in each step of a night: the same command goes on, and the tables are those of an undisturbed run."""

import signal
import subprocess
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest
from commands import Environment, SampleRun, built, mine_command, mine_without_prefect, tables_of

from flows.config import load_settings
from pipeline.artifacts import Run

pytest_plugins = ["flow_fixtures"]
pytestmark = pytest.mark.server

LONG = 0.3  # seconds; a shorter step is killed as soon as it says that it begins
SHARE = 0.4  # how far into a longer one
BEFORE = [date(2026, 3, number) for number in range(1, 10)]
MET = 0.6  # least share of the kills that must find their step unfinished


def killed_in(stage: str, seconds: float, folder: Path, environment: Environment) -> bool:
    """Start the night, kill it `seconds` after the step has begun; whether the step was still unfinished then."""
    begun = f"{stage}: "
    with subprocess.Popen(
        mine_command(folder), env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        printed = []
        try:
            for line in process.stdout:
                printed.append(line)
                if line.startswith(begun):
                    time.sleep(seconds)
                    break
        finally:
            process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "".join(printed)
    assert printed[-1].startswith(begun), printed
    manifest = folder / "manifests" / f"{stage}.json"
    made = Run(str(folder)).manifests().get(stage)
    if made and made.fingerprint not in old_marks(folder):
        manifest.unlink()
        return False
    return True


def old_marks(folder: Path) -> list[str]:
    """Fingerprints of the stages as they stood before anything was killed."""
    kept = folder.with_suffix(".marks")
    return kept.read_text().split() if kept.exists() else []


def killed_in_each(stages: Iterable[str], folder: Path, undisturbed: Run, environment: Environment) -> list[bool]:
    """Kill nights in one step after the other, then let one come to its end; which kills met an unfinished step."""
    took = {name: manifest.seconds for name, manifest in undisturbed.manifests().items()}
    moments = {stage: SHARE * took[stage] if took[stage] > LONG else 0.0 for stage in stages}
    met = [killed_in(stage, moment, folder, environment) for stage, moment in moments.items()]
    printed = built(mine_command(folder), environment)
    assert "\n✓ mined_triplets " in printed
    return met


def test_killed_in_every_step_of_the_first_night_and_of_a_later_one(
    mined_run: SampleRun, served: Environment, tmp_path: Path
) -> None:
    first, later, trial = (tmp_path / name for name in ("first", "later", "trial"))
    settings = load_settings()
    for folder in (later, trial):
        mine_without_prefect(folder, settings, BEFORE)
    marks = [manifest.fingerprint for manifest in Run(str(later)).manifests().values()]
    later.with_suffix(".marks").write_text("\n".join(marks))
    redone = mine_without_prefect(trial, settings)
    undisturbed = Run(str(mined_run.folder))
    every = [name for name in undisturbed.manifests() if name != "funnel"]
    assert {"ingest_logs", "click_evidence", "log_queries", "mined_pairs", "mined_triplets"} <= set(redone) < set(every)
    ordered = sorted(every, key=lambda name: mined_run.printed.index(f"\n✓ {name} "))
    with ThreadPoolExecutor() as pool:
        chains = [
            pool.submit(killed_in_each, ordered, first, undisturbed, served),
            pool.submit(killed_in_each, redone, later, Run(str(trial)), served),
        ]
        met = [kill for chain in chains for kill in chain.result()]
    assert len(met) == len(every) + len(redone)
    assert sum(met) >= MET * len(met), met
    for folder in (first, later):
        assert tables_of(folder) == tables_of(mined_run.folder)
        assert not [path for path in (folder / "progress").rglob("*") if path.is_file()]
