"""darklode judge probe: altered pairs of a run that a judge should see through."""

from typing import Annotated

import typer

from darklode.flows.commands.judge_options import settings_of
from darklode.flows.commands.options import JsonOption, RunArgument, SetOption
from darklode.flows.config import overrides
from darklode.flows.console import reporter
from darklode.flows.jobs.probe_judge import probe_judge
from darklode.flows.launch import launch
from darklode.flows.output import Answer, answering
from darklode.flows.prefect.progress import SilentReporter
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, StageUnfinished


def probe(
    run: RunArgument,
    pairs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Pairs per kind of probe; sets judge.probe_pairs.")
    ] = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge altered pairs of a run, and show how often the judge is wrong."""
    from darklode.pipeline.judge.factory import Judges
    from darklode.pipeline.judge.probe.stage import no_new_texts

    chosen = [*(assignments or []), *([] if pairs is None else [f"judge.probe_pairs={pairs}"])]
    settings = settings_of(run, chosen)
    with answering(as_json) as answer:
        if reason := no_new_texts(Judges.from_settings(settings)):
            answer.fact("skipped", reason, f"Not probed: {reason}.")
            return
        if "verdicts" not in Run(run).parts():
            raise ArtifactError(f"{run} is not judged yet; complete `darklode build` first")
        try:
            launch(probe_judge, SilentReporter() if as_json else reporter(), run, overrides(chosen))
        except StageUnfinished:
            summarize(Run(run), answer)
            raise
        summarize(Run(run), answer)


def summarize(run: Run, answer: Answer) -> None:
    """Rates per kind of probe, and what the probes cost."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.judge.probe.stage import PROBE_STAGE
    from darklode.pipeline.report.probes import judge_probe

    answer.table("probes", judge_probe(all_tables(run)), "Wrong replies to probes (95 % intervals)")
    manifest = run.manifest(PROBE_STAGE)
    facts = manifest.facts if manifest else {}
    if "asked" in facts:
        counts = {"requests": facts["asked"], "hits": facts["hits"]}
        answer.fact(
            "calls", counts, f"{counts['requests']:,} pairs requested, {counts['hits']:,} known from the ledger."
        )
    answer.say("Single replies: darklode query RUN \"FROM judge_probes WHERE outcome = 'wrong'\"")
