"""darklode build: build a judged benchmark from documents and queries."""

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from darklode.flows.commands.checking import check_before, settings_for
from darklode.flows.commands.options import CheckOption, ConfigOption, PresetOption, SetOption, application
from darklode.flows.commands.run_summary import show_next_steps, show_summary
from darklode.flows.config import installed_preset, load_settings, overrides, read_project, without_judge
from darklode.flows.console import console, printable, reporter, show, show_records
from darklode.flows.runs import benchmark_preset
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.duckdb_views import query as run_sql
from darklode.pipeline.report import statistics
from darklode.schemas.settings import Settings

app = application()


@app.command(
    epilog="Example: darklode build --docs handbook/ --queries queries.csv --out runs/first --set clean.language=null"
)
def build(
    docs: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Documents: folder of Markdown, HTML or text files, JSONL, CSV, Parquet, or BEIR folder; or the "
            "address of a database table, search index, s3:// prefix or hf:// data set.",
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Queries: text file (one per line), CSV, JSONL, Parquet, BEIR folder, or address."
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="FOLDER", help="Run folder or s3://bucket/prefix.")] = None,
    qrels: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Relevance judgments that you have: TREC or BEIR qrels, Quepid CSV, or a judgment list. No judge runs "
            "then, unless you name one.",
        ),
    ] = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    keep_all_queries: Annotated[
        bool, typer.Option("--keep-all-queries", help="Skip query cleaning, e.g. for a test collection.")
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Stop before judging; estimate pairs, tokens, time and cost from 50 calls."),
    ] = False,
    human: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="CSV file of human labels to compare the judge with; sets judge.human_labels."
        ),
    ] = None,
    check: CheckOption = False,
) -> None:
    """Build a judged benchmark and training triplets from documents and a query log."""
    extra = ["clean.keep_all=true"] if keep_all_queries else []
    extra += [f"judge.human_labels={json.dumps(human)}"] if human is not None else []
    config_file = read_project(config, preset, default="")
    docs, queries = config_file.path("docs", docs, "--docs"), config_file.path("queries", queries, "--queries")
    out, extra = config_file.path("out", out, "--out"), [*(assignments or []), *extra]
    qrels = qrels if qrels is not None else config_file.paths.get("qrels")
    preset = config_file.preset or benchmark_preset(out)
    inputs = [docs, queries, *([qrels] if qrels else [])]

    def settings_of_options() -> Settings:
        values = overrides(extra)
        return load_settings(
            preset, config, values=without_judge(config_file.preset, config, values) if qrels else values
        )

    settings = settings_for(settings_of_options, inputs, out, mined=False)
    if not check_before(lambda preflight: preflight.build_checks(docs, queries, out, settings, qrels), only=check):
        return
    from darklode.flows.jobs.build_benchmark import build_benchmark
    from darklode.flows.launch import launch

    _show_judge(settings)
    values = settings.model_dump(mode="json")
    launch(build_benchmark, reporter(), docs, queries, out, preset, values, estimate, qrels=qrels)
    if estimate:
        return
    _summarise(Run(out), settings)


INSTALL_ENCODER_HINT = 'For better labels without an API key or server: pip install "darklode[local]"'


def _show_judge(settings: Settings) -> None:
    """Name the judge, and a better one that only needs to be installed."""
    console.print(f"[dim]Judge: {printable(settings.judge.kind)}[/dim]", soft_wrap=True)
    if settings.judge.kind == "embedded" and installed_preset() == settings.judge.kind:
        console.print(f"[dim]{printable(INSTALL_ENCODER_HINT)}[/dim]", soft_wrap=True)


FUNNEL_SQL = """
    SELECT step, any_value(rows_in) AS "in", any_value(rows_out) AS "out", any_value(unit_out) AS "of",
           string_agg(format('{} {:t,}', reason, dropped), ', ' ORDER BY dropped DESC, reason) AS dropped
    FROM funnel GROUP BY position, step ORDER BY position
"""
EXAMPLE_TRIPLETS_SQL = """
    SELECT query, positive, negatives[1] AS "hardest negative" FROM triplets ORDER BY hash(triplet_id) LIMIT 3
"""


def _summarise(run: Run, settings: Settings) -> None:
    console.print()
    show(run_sql(run, FUNNEL_SQL), "Funnel")
    _show_cleaning(run, settings)
    show_audit(run, settings)
    examples = run_sql(run, EXAMPLE_TRIPLETS_SQL)
    if examples.num_rows:
        show_records(examples, "Three example triplets")
    show_summary(run)
    show_files(run, RUN_FILES)
    show_next_steps(run)


def show_files(run: Run, files: Mapping[str, str]) -> None:
    """Print the paths of a run's files, each with a label."""
    for name, label in files.items():
        console.print(f"{label:<22} {printable(run.store.url)}/{name}", soft_wrap=True)


TRIPLETS_PRESET_NOTE = "For triplets alone, --preset triplets keeps all distinct queries, without cluster sampling."


DROPPED_QUERIES_SQL = """
    WITH dropped_queries AS (
        SELECT substr(stage, 7) AS rule, regexp_replace(left(payload, 60), '\\s+', ' ', 'g') AS query, hash(id) AS place
        FROM rejects WHERE stage LIKE 'clean.%' AND payload IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY stage ORDER BY place, query) <= 5
    )
    SELECT rule, string_agg(query, ' · ' ORDER BY place, query) AS queries
    FROM dropped_queries GROUP BY rule ORDER BY rule
"""


def _show_cleaning(run: Run, settings: Settings) -> None:
    """Print what each cleaning rule dropped and the settings that control it."""
    if settings.clean.keep_all:
        return
    show(statistics.cleaning(all_tables(run)), "Cleaning: share of queries dropped by each rule")
    examples = run_sql(run, DROPPED_QUERIES_SQL).to_pylist()
    if examples:
        console.print("Examples of dropped queries:")
    for row in examples:
        console.print(f"  [dim]{row['rule']}:[/dim] {printable(row['queries'])}", soft_wrap=True)
    for sentence in filter(None, (statistics.sampling_note(run), TRIPLETS_PRESET_NOTE)):
        console.print(f"[dim]{sentence}[/dim]", soft_wrap=True)
    console.print()


RUN_FILES = {
    "report.html": "report",
    "README.md": "dataset card",
    "tables/": "tables (Parquet)",
    "tables/triplets/": "triplets",
    "views.sql": "DuckDB views",
    "settings.yaml": "settings used",
}


RETRIEVER_AUDIT_SQL = """
    SELECT retriever, at_10.recall AS "@10", recall_at_depth AS "@{depth}", at_search_depth.recall AS "@{search}",
           format('{{:.2f}}–{{:.2f}}', recall_low, recall_high) AS "95 %", leave_one_out AS "without it",
           unique_positives AS "unique"
    FROM audit_retrievers at_search_depth LEFT JOIN ({shallow}) at_10 USING (retriever)
    WHERE tenant IS NULL ORDER BY at_10.recall DESC, at_search_depth.recall DESC, retriever
"""
AUDIT_NOTE = (
    "Recall of the judged positives at three depths; recall of the pool without the retriever; positives that only it "
    "found. Recall is relative to the pool: texts that no retriever found were never judged."
)
GIVEN_LABELS_AUDIT_NOTE = (
    "Recall of the given positives at three depths; recall of all other retrievers together in their first {depth}; "
    "positives that only it found. All retrievers together find {recall:.3f} of the positives in their first {depth}."
)
POOL_RECALL_SQL = """
    WITH positives AS (
        SELECT tenant, query_id, chunk_id, coalesce(bool_or(rank <= {depth}), false) AS is_found
        FROM qrels LEFT JOIN rankings USING (tenant, query_id, chunk_id) WHERE relevance > 0 GROUP BY ALL
    ), queries AS (
        SELECT avg(CAST(is_found AS INTEGER)) AS recall FROM positives GROUP BY tenant, query_id
    )
    SELECT avg(recall) AS recall FROM queries
"""


def show_audit(run: Run, settings: Settings) -> None:
    """Print each retriever's recall and contribution, over all tenants."""
    pool = settings.pool
    depths = {"depth": pool.depth, "search": pool.search_depth}
    show(run_sql(run, RETRIEVER_AUDIT_SQL.format(shallow=statistics.RECALL_AT_10_SQL, **depths)), "Retriever audit")
    console.print(f"[dim]{_audit_note(run, pool.depth)}[/dim]\n")


def _audit_note(run: Run, depth: int) -> str:
    """What the figures of the audit are relative to: given judgments name positives that no retriever found, too."""
    recall = run_sql(run, POOL_RECALL_SQL.format(depth=depth))["recall"][0].as_py()
    if not all_tables(run).rows("judgments") or recall is None:
        return AUDIT_NOTE
    return GIVEN_LABELS_AUDIT_NOTE.format(depth=depth, recall=recall)
