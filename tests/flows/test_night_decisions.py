"""The commands that decide about held days: what the run was made from, quoted for a shell."""

import shlex

from darklode.flows.night_decisions import run_decision_command
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import MinedInputs

INPUTS = MinedInputs(logs="/data/my logs; rm -rf x", docs="/data/docs")


def test_a_local_run_names_its_settings(run: Run) -> None:
    words = shlex.split(run_decision_command(run, INPUTS)("--accept-day", "a'b:2026-03-11"))
    assert words[:6] == ["darklode", "mine", "--logs", INPUTS.logs, "--docs", INPUTS.docs]
    assert words[6:10] == ["--out", run.store.url, "--config", f"{run.store.url}/settings.yaml"]
    assert words[10:] == ["--accept-day", "a'b:2026-03-11", "--reason", "…"]


def test_a_run_on_s3_has_no_settings_file_for_the_command(run: Run) -> None:
    run.store.local, run.store.url = None, "s3://bucket/run"
    words = shlex.split(run_decision_command(run, INPUTS)("--discard-day", "2026-03-11"))
    assert words[6:] == ["--out", "s3://bucket/run", "--discard-day", "2026-03-11", "--reason", "…"]
