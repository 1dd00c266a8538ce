"""darklode audit: what each retriever contributes to a finished run, measured again."""

from darklode.flows.audit_retrievers import audit_retrievers
from darklode.flows.commands.build import show_audit
from darklode.flows.commands.options import RunArgument, SetOption, application
from darklode.flows.config import overrides
from darklode.flows.console import reporter
from darklode.flows.launch import launch
from darklode.pipeline.base.artifacts import Run

app = application()


@app.command()
def audit(run: RunArgument, assignments: SetOption = None) -> None:
    """Measure again what each retriever contributes to a finished run."""
    launch(audit_retrievers, reporter(), run, overrides(assignments or []))
    show_audit(Run(run))
