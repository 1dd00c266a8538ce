"""darklode audit: recompute each retriever's recall and contribution."""

from darklode.flows.commands.build import show_audit
from darklode.flows.commands.options import JsonOption, RunArgument, SetOption, application
from darklode.flows.config import overrides
from darklode.flows.console import reporter
from darklode.flows.jobs.audit_retrievers import audit_retrievers
from darklode.flows.launch import launch
from darklode.flows.output import Answer, PrintedAnswer, answering
from darklode.flows.prefect.progress import SilentReporter
from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables, query
from darklode.pipeline.report.caveats import favored_retrievers
from darklode.pipeline.report.evaluations import CORRECTED_TITLE, corrected_figures

app = application()

AUDIT_SQL = "FROM audit_retrievers WHERE tenant IS NULL ORDER BY recall DESC, retriever"


@app.command()
def audit(run: RunArgument, assignments: SetOption = None, as_json: JsonOption = False) -> None:
    """Recompute each retriever's recall and leave-one-out contribution for a finished run."""
    read_run(Run(run))
    launch(audit_retrievers, SilentReporter() if as_json else reporter(), run, overrides(assignments or []))
    with answering(as_json) as answer:
        summarize(Run(run), answer)


def summarize(run: Run, answer: Answer) -> None:
    """Each retriever's recall and contribution."""
    settings = read_run(run).settings
    tables = all_tables(run)
    if isinstance(answer, PrintedAnswer):
        show_audit(run, settings)
        answer.table("corrected_audit", corrected_figures(tables, "corrected_audit"), CORRECTED_TITLE, "")
    else:
        answer.table("audit", query(run, AUDIT_SQL), "Retriever audit")
        answer.table("corrected_audit", tables.read("corrected_audit"), CORRECTED_TITLE)
    warning = favored_retrievers(tables, settings)
    if warning:
        answer.say(warning, warning=True)
