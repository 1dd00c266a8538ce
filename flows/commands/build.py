"""darklode build: a judged benchmark from documents and queries, and what there is to see of it."""

import json
import shlex
from collections.abc import Mapping
from typing import Annotated

import typer

from darklode.flows.commands.checking import check_before, settings_for
from darklode.flows.commands.doctor import missing_packages
from darklode.flows.commands.options import CheckOption, ConfigOption, PresetOption, SetOption, application
from darklode.flows.config import load_settings, read_project
from darklode.flows.console import console, printable, reporter, show, show_upright
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.duckdb_views import query as run_sql
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import caveats
from darklode.schemas.settings import Settings

app = application()


@app.command(
    epilog="Example: darklode build --docs handbook/ --queries queries.csv --out runs/first --set clean.language=null"
)
def build(
    docs: Annotated[
        str | None, typer.Option(help="Documents: Markdown, HTML or text folder, JSONL, CSV, Parquet, BEIR folder.")
    ] = None,
    queries: Annotated[
        str | None, typer.Option(help="Queries: text (one a line), CSV, JSONL, Parquet, BEIR folder.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Where the run lives: a folder or s3://bucket/prefix.")] = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    keep_all_queries: Annotated[
        bool, typer.Option("--keep-all-queries", help="Let every query through cleaning (test collections).")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Stop before the judge: pairs, tokens, time and cost from 50 calls.")
    ] = False,
    human: Annotated[
        str | None, typer.Option(metavar="CSV", help="Human labels to hold the judge against; sets judge.human_labels.")
    ] = None,
    check: CheckOption = False,
) -> None:
    """Build a judged benchmark and triplets from documents and a query log."""
    extra = ["clean.keep_all=true"] if keep_all_queries else []
    extra += [f"judge.human_labels={json.dumps(human)}"] if human is not None else []
    config_file = read_project(config, preset)
    docs, queries = config_file.path("docs", docs, "--docs"), config_file.path("queries", queries, "--queries")
    out, extra = config_file.path("out", out, "--out"), [*(assignments or []), *extra]
    settings = settings_for(lambda: load_settings(config_file.preset, config, extra), [docs, queries], out, mined=False)
    if not check_before(lambda preflight: preflight.of_build(docs, queries, out, settings), only=check):
        return
    from darklode.flows.jobs.build_benchmark import build_benchmark
    from darklode.flows.launch import launch

    _propose(Run(out), settings)
    launch(
        build_benchmark, reporter(), docs, queries, out, config_file.preset, settings.model_dump(mode="json"), estimate
    )
    if estimate:
        return
    _summarise(Run(out), settings)


PROPOSAL = "An encoder is installed that can judge here, too, without a key or a server: --preset local"


def _propose(run: Run, settings: Settings) -> None:
    """Name a better judge that is at hand, when a run begins."""
    if settings.judge.kind == "embedded" and not missing_packages("local") and not run.store.sizes("manifests"):
        console.print(f"[dim]{PROPOSAL}[/dim]", soft_wrap=True)


FUNNEL_BY_STEP = """
    SELECT step, any_value(rows_in) AS "in", any_value(rows_out) AS "out", any_value(unit_out) AS "of",
           string_agg(format('{} {:t,}', reason, dropped), ', ' ORDER BY dropped DESC, reason) AS dropped
    FROM funnel GROUP BY position, step ORDER BY position
"""
SAMPLE = """
    SELECT query, positive, negatives[1] AS "hardest negative" FROM triplets ORDER BY hash(triplet_id) LIMIT 3
"""


def _summarise(run: Run, settings: Settings) -> None:
    console.print()
    show(run_sql(run, FUNNEL_BY_STEP), "Funnel")
    _cleaning(run, settings)
    show_audit(run, settings)
    show_upright(run_sql(run, SAMPLE), "Three of the triplets")
    judges = run_sql(run, "SELECT DISTINCT judge_id FROM verdicts WHERE judge_id LIKE 'embedded%'")
    if judges.num_rows:
        console.print(f"[yellow]{WEAK}[/yellow]", soft_wrap=True)
    for sentence in caveats(all_tables(run), settings):
        console.print(f"[yellow]{printable(sentence)}[/yellow]", soft_wrap=True)
    for name, label in PLACES.items():
        console.print(f"{label:<22} {printable(run.store.url)}/{name}", soft_wrap=True)
    tell_next(run, NEXT)


WEAK = "Labels by the embedded scorer, not by an LLM: weak, for a first look only."
NEXT = {
    "report RUN --open": "look at the report",
    "browse RUN": "search queries, verdicts and triplets",
    "review RUN": "label a sample, to know what the labels are worth",
}


def tell_next(run: Run, commands: Mapping[str, str]) -> None:
    """The commands to type next, with the run's place in them."""
    console.print("\nNext:")
    for command, purpose in commands.items():
        typed = f"darklode {command.replace('RUN', shlex.quote(run.store.url))}"
        console.print(f"  {printable(typed)}   [dim]{purpose}[/dim]", soft_wrap=True)


MORE = "For triplets more is better: --preset triplets keeps lengths from P5 to P95, and every distinct query."


def _cleaning(run: Run, settings: Settings) -> None:
    """Say what each rule of cleaning dropped, and which settings loosen it."""
    if settings.clean.keep_all:
        return
    show(statistics.cleaning(all_tables(run)), "Cleaning: share of the queries that each rule dropped")
    for sentence in filter(None, (statistics.sampling_note(run), MORE)):
        console.print(f"[dim]{sentence}[/dim]", soft_wrap=True)
    console.print()


PLACES = {
    "report.html": "report to look at",
    "README.md": "dataset card",
    "tables/": "tables (Parquet)",
    "tables/triplets/": "triplets",
    "views.sql": "views for DuckDB",
    "settings.yaml": "settings in force",
}


AUDITED = """
    SELECT retriever, ten.recall AS "@10", recall_at_depth AS "@{depth}", audited.recall AS "@{search}",
           format('{{:.2f}}–{{:.2f}}', recall_low, recall_high) AS "95 %", leave_one_out AS "without it",
           unique_positives AS "alone"
    FROM audit_retrievers audited LEFT JOIN ({shallow}) ten USING (retriever)
    WHERE tenant IS NULL ORDER BY ten.recall DESC, audited.recall DESC, retriever
"""
READING = (
    "Recall of judged positives at each depth of a retriever's list; of all other lists at the pool's depth, without "
    "it; how many positives it alone found. A retriever's own positives count toward it: what no retriever found was "
    "never judged."
)


def show_audit(run: Run, settings: Settings) -> None:
    """Print what each retriever contributes, over all tenants."""
    pool = settings.pool
    depths = {"depth": pool.depth, "search": pool.search_depth}
    show(run_sql(run, AUDITED.format(shallow=statistics.SHALLOW, **depths)), "Audit of the retrievers")
    console.print(f"[dim]{READING}[/dim]\n")
