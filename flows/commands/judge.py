"""darklode judge: what judges said and what they are asked; `judge_batch` has the batch services."""

from typing import Annotated, Any

import pyarrow as pa
import typer
from typer.core import TyperGroup

from darklode.flows.commands import judge_batch
from darklode.flows.commands.judge_options import language_model, settings_of, strictest_format
from darklode.flows.commands.options import JsonOption, RunArgument, SetOption, application
from darklode.flows.console import console, printable, show
from darklode.flows.output import answering
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, CommandLineError

_RENAMED = {"export-batch": "batch export", "import-batch": "batch fetch"}


class JudgeCommands(TyperGroup):
    """Tells what a command of before is called now."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name.

        Raises:
            CommandLineError: it has another name now.
        """
        if args[0] in _RENAMED:
            raise CommandLineError(f"`darklode judge {args[0]}` is `darklode judge {_RENAMED[args[0]]}` now")
        return super().resolve_command(ctx, args)


app = application(no_args_is_help=True, cls=JudgeCommands)
app.add_typer(judge_batch.app, name="batch")


@app.callback()
def judge() -> None:
    """What judges said and cost, what they are asked, and batch services."""


@app.command()
def stats(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run's judges, with its hits and prices.")
    ] = None,
    prune: Annotated[
        list[str] | None, typer.Option(metavar="JUDGE", help="Delete this judge's verdicts; `all` deletes all.")
    ] = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the verdicts kept of each judge: labels, nulls, tokens, cost, size."""
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
        answer.table("verdicts", stats_rows, "Verdicts kept")
        if "hits" in facts:
            taken = {name: facts[name] for name in ("hits", "asked")}
            sentence = f"The last build took {facts['hits']:,} verdicts from here and asked for {facts['asked']:,}."
            answer.fact("last_build", taken, sentence)
        for damaged_part in damaged:
            answer.say(f"skipped, not to be trusted: {damaged_part}", warning=True)


@app.command()
def calibration(run: RunArgument) -> None:
    """Show a run's judge against human labels, and how far a panel agrees."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.judge.panel import pairwise_kappa, panel_alpha
    from darklode.pipeline.report import statistics

    facts = _facts(run)
    tables = all_tables(Run(run))
    compared = statistics.calibration(tables)
    if compared.num_rows:
        show(compared, "The judge against people")
        show(statistics.reliability(tables), "Reliability of its probabilities (95 % intervals)")
    else:
        console.print("No human labels: give some with `darklode build --human labels.csv`.")
    if "members" in facts:
        show(pairwise_kappa(tables), "Agreement of each two judges of the panel")
        show(panel_alpha(tables), "Agreement of the whole panel (Krippendorff's alpha)")


@app.command(epilog="Example: darklode judge prompt --show --query 'reset my password' --chunk 'Open Settings …'")
def prompt(
    shown: Annotated[bool, typer.Option("--show", help="Render it for a pair, as the model reads it.")] = False,
    query: Annotated[
        str | None, typer.Option(help="The pair's query; without one, the prompt's first example.")
    ] = None,
    chunk: Annotated[str, typer.Option(help="The pair's chunk.")] = "",
    title: Annotated[str | None, typer.Option(help="Title of the chunk's document.")] = None,
    heading: Annotated[str | None, typer.Option(help="Headings above the chunk.")] = None,
    assignments: SetOption = None,
) -> None:
    """Show the prompt that judge.prompt and judge.response_format name."""
    from darklode.pipeline.judge.llm.prompt import PairText, load_prompt
    from darklode.pipeline.judge.llm.response_formats import RequestTemplate

    settings = language_model(settings_of(None, [*_NOBODY, *(assignments or [])]).judge)
    template = RequestTemplate(settings, load_prompt(settings.prompt), strictest_format(settings))
    prompt_used = template.prompt
    console.print(
        printable(f"{prompt_used.name}, version {prompt_used.head.version}, labels {', '.join(prompt_used.labels)}")
    )
    if not shown:
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


_NOBODY = ("judge.kind=llm", "judge.model=model", "judge.base_url=http://127.0.0.1:8000/v1")
"""Enough to be a language model; a prompt is shown without asking one."""


def _facts(run: str | None) -> dict[str, Any]:
    """What the run's last judging noted."""
    if run is None:
        return {}
    from darklode.pipeline.judge.stage import JUDGE

    manifest = Run(run).manifest(JUDGE)
    if manifest is None:
        raise ArtifactError(f"{run} has not been judged yet; run `darklode build` to the end")
    return manifest.facts


def _judges(facts: dict[str, Any]) -> list[str]:
    return [*facts["judge_ids"], *facts.get("members", [])]


def _is_in_run(judge_id: str, of_run: list[str]) -> bool:
    """Whether a run's verdicts are this judge's; theirs may name the threshold besides."""
    return any(run_judge_id == judge_id or run_judge_id.startswith(f"{judge_id}:") for run_judge_id in of_run)


def _cost(row: dict[str, Any], prices: tuple[float, float]) -> float | None:
    if not any(prices):
        return None
    return float((row["prompt_tokens"] * prices[0] + row["completion_tokens"] * prices[1]) / 1e6)
