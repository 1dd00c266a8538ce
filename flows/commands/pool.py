"""darklode pool: show retrieval costs and pool sizes."""

from darklode.flows.commands.options import JsonOption, RunArgument, application
from darklode.flows.output import answering
from darklode.flows.runs import existing
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report import statistics
from darklode.pipeline.retrieve.search import retrieval

app = application()


@app.command()
def pool(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show each retriever's time and candidates, and the sizes of the pools."""
    tables = all_tables(existing(run))
    with answering(as_json) as answer:
        answer.table("retrieval", retrieval(Run(run)), "Retrieval")
        answer.table("candidates", statistics.pool_sizes(tables), "Candidates per query")
        answer.table("found_by", statistics.pool_found_by(tables), "Candidates by number of retrievers that found them")
