"""probe-judge: judge altered pairs of a finished benchmark, to see how far its judge can be trusted."""

from typing import Any

from darklode.flows.jobs.build_benchmark import probe_step
from darklode.flows.jobs.job import Job
from darklode.flows.paths import FlowPath
from darklode.flows.runs import read_benchmark, write_run
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import SettingsError, StageUnfinished
from darklode.pipeline.judge.factory import Judges


def probe_judge(out: FlowPath, settings: dict[str, Any] | None = None) -> None:
    """Probe the judge of a run, and update its card and report; of the settings only `probe_pairs` is recorded.

    Args:
        out: the run's folder or s3:// prefix.
        settings: overrides of the run's settings that change no verdict, such as addresses, prices and limits.

    Raises:
        SettingsError: another judge than the run's: its rates would pass for those of the run's labels.
        StageUnfinished: the judge stopped before all probes were judged; card and report say what is missing.
    """
    run = Run(out)
    with run.lock():
        record, inputs = read_benchmark(run)
        resolved = record.with_overrides(settings or {})
        if Judges.from_settings(resolved).identity != Judges.from_settings(record.settings).identity:
            raise SettingsError(
                f"these settings are of another judge than the one that judged {out}; build a run with it to probe it"
            )
        unfinished: StageUnfinished | None = None
        try:
            run_step(run, probe_step(resolved, inputs.qrels))
        except StageUnfinished as error:
            unfinished = error
        probe_pairs = {"judge": {"probe_pairs": resolved.judge.probe_pairs}}
        write_run(run, inputs, record.with_overrides(probe_pairs))
        finish(run)
        if unfinished:
            raise unfinished


JOB = Job("probe-judge", probe_judge)
