"""darklode audit: what each retriever contributes to a finished run, measured again."""

from darklode.flows.audit_retrievers import audit_retrievers
from darklode.flows.commands.build import show_audit
from darklode.flows.commands.options import RunArgument, SetOption, application
from darklode.flows.config import overrides
from darklode.flows.console import console, printable, reporter
from darklode.flows.launch import launch
from darklode.flows.runs import recorded
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.views import all_tables
from darklode.pipeline.report.caveats import favours

app = application()


@app.command()
def audit(run: RunArgument, assignments: SetOption = None) -> None:
    """Measure again what each retriever contributes to a finished run."""
    recorded(Run(run))
    launch(audit_retrievers, reporter(), run, overrides(assignments or []))
    settings = recorded(Run(run)).settings
    show_audit(Run(run), settings)
    warning = favours(all_tables(Run(run)), settings)
    if warning:
        console.print(f"[yellow]{printable(warning)}[/yellow]", soft_wrap=True)
