"""darklode pool: what the retrievers gave to the pool."""

from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import show
from darklode.flows.runs import existing
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.views import all_tables
from darklode.pipeline.report import statistics
from darklode.pipeline.retrieve.search import retrieval

app = application()


@app.command()
def pool(run: RunArgument) -> None:
    """Show what each retriever took and gave, and the pool's sizes."""
    tables = all_tables(existing(run))
    show(retrieval(Run(run)), "Retrieval")
    show(statistics.pool_sizes(tables), "Candidates per query")
    show(statistics.pool_found_by(tables), "Found by so many retrievers")
