"""darklode judge: what judges said, what they are asked, and batch files for them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer

from darklode.flows.commands.options import RunArgument, SetOption, application
from darklode.flows.config import load_settings, overrides
from darklode.flows.console import console, printable, show
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, DarklodeError, SettingsError
from darklode.schemas.settings import JudgeSettings, Settings

if TYPE_CHECKING:
    from darklode.pipeline.judge.kinds.llm import LlmSettings
    from darklode.pipeline.judge.llm.forms import Form, RequestTemplate


_PROBE_SECONDS = 10.0

app = application(no_args_is_help=True)


@app.callback()
def judge() -> None:
    """What judges said and cost, what they are asked, and batch files."""


@app.command()
def stats(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run's judges, with its hits and prices.")
    ] = None,
    prune: Annotated[
        list[str] | None, typer.Option(metavar="JUDGE", help="Delete this judge's verdicts; `all` deletes all.")
    ] = None,
    assignments: SetOption = None,
) -> None:
    """Show the verdicts kept of each judge: labels, nulls, tokens, cost, size."""
    from darklode.pipeline.judge.ledger import Ledger

    settings = _settings(run, assignments)
    ledger = Ledger(settings.cache.root)
    if prune:
        console.print(f"{ledger.prune(None if 'all' in prune else prune):,} bytes freed")
    facts = _facts(run)
    rows = [row for row in ledger.usage().to_pylist() if not facts or _judged(row["judge_id"], _judges(facts))]
    damaged = [place for row in rows for place in row.pop("damaged")]
    for row in rows:
        row["cost"] = _cost(row, settings.judge.prices())
    show(pa.Table.from_pylist(rows) if rows else pa.table({"judge_id": pa.array([], pa.string())}), "Verdicts kept")
    if "hits" in facts:
        console.print(f"The last build took {facts['hits']:,} verdicts from here and asked for {facts['asked']:,}.")
    for place in damaged:
        console.print(f"[yellow]skipped, not to be trusted: {printable(place)}[/yellow]", soft_wrap=True)


@app.command()
def calibration(run: RunArgument) -> None:
    """Show a run's judge against human labels, and how far a panel agrees."""
    from darklode.pipeline.base.views import all_tables
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
    """Show the prompt that judge.prompt and judge.mode name."""
    from darklode.pipeline.judge.llm.forms import RequestTemplate
    from darklode.pipeline.judge.llm.prompt import PairText, load_prompt

    settings = _llm(_settings(None, [*_NOBODY, *(assignments or [])]).judge)
    template = RequestTemplate(settings, load_prompt(settings.prompt), _strictest(settings))
    found = template.prompt
    console.print(printable(f"{found.name}, version {found.head.version}, labels {', '.join(found.labels)}"))
    if not shown:
        return
    example = found.examples[0] if query is None and found.examples else None
    pair = (
        PairText(example.query, example.title, example.heading, example.chunk)
        if example
        else PairText(query or "", title, heading, chunk)
    )
    user, _ = template.shown(pair, settings.max_chunk_tokens)
    for role, text in (("system", found.system_text(template.form.answer(found))), ("user", user)):
        console.print(f"\n[bold]{role}[/bold]")
        console.print(printable(text), soft_wrap=True)


@app.command(epilog="Then: vllm run-batch -i calls.jsonl -o answers.jsonl --model MODEL, or a hosted batch service")
def export_batch(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, such as calls.jsonl.")],
    assignments: SetOption = None,
) -> None:
    """Write the run's pairs that have no verdict yet as an OpenAI batch file."""
    from darklode.pipeline.judge.ledger import Ledger
    from darklode.pipeline.judge.llm.batch import unjudged, write_batch

    settings = _settings(run, assignments)
    template = _template(settings)
    tables = Run(run).tables("queries", "chunks", "pool")
    files = write_batch(
        unjudged(tables, Ledger(settings.cache.root), template.judge_id, template.earlier), template, file
    )
    console.print(f"for {printable(template.judge_id)}", soft_wrap=True)
    for path, calls in files.items():
        console.print(f"{calls:,} calls in {printable(str(path))}", soft_wrap=True)
    if not files:
        console.print("every pair of the run has a verdict")


@app.command()
def import_batch(
    run: RunArgument,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Output files of the service, in any order.", exists=True, dir_okay=False),
    ],
    assignments: SetOption = None,
) -> None:
    """Keep a batch's answers, so that the next build with these settings finds them."""
    from darklode.pipeline.judge.ledger import Ledger
    from darklode.pipeline.judge.llm.batch import read_batch, unjudged

    settings = _settings(run, assignments)
    template, ledger = _template(settings), Ledger(settings.cache.root)
    tables = Run(run).tables("queries", "chunks", "pool")
    for path in files:
        with path.open("rb") as lines:
            counts = read_batch(lines, template, ledger)
        told = ", ".join(f"{counts[kind]:,} {what}" for kind, what in _LINES.items() if counts[kind])
        console.print(printable(f"{path}: {told or 'nothing'}"), soft_wrap=True)
    missing = sum(pairs.num_rows for pairs in unjudged(tables, ledger, template.judge_id, template.earlier))
    console.print(f"{missing:,} pairs of the run have no verdict of {printable(template.judge_id)} yet", soft_wrap=True)


_NOBODY = ("judge.kind=llm", "judge.model=model", "judge.base_url=http://127.0.0.1:8000/v1")
"""Enough to be a language model; a prompt is shown without asking one."""

_LINES = {
    "verdict": "verdicts",
    "null": "unreadable answers, kept as null",
    "failed": "failed calls, to be asked again",
    "another": "lines of another judge (were prompt, model or judge.mode changed since the export?)",
    "broken": "lines that are no JSON",
}


def _settings(run: str | None, assignments: list[str] | None) -> Settings:
    """The run's settings, or the defaults, with what the command line sets."""
    if run is None:
        return load_settings(assignments=assignments or [])
    from darklode.flows.runs import benchmark

    return benchmark(Run(run)).changed(overrides(assignments or []))


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


def _judged(judge_id: str, of_run: list[str]) -> bool:
    """Whether a run's verdicts are this judge's; theirs may name the threshold besides."""
    return any(one == judge_id or one.startswith(f"{judge_id}:") for one in of_run)


def _cost(row: dict[str, Any], prices: tuple[float, float]) -> float | None:
    if not any(prices):
        return None
    return float((row["prompt_tokens"] * prices[0] + row["completion_tokens"] * prices[1]) / 1e6)


def _template(chosen: Settings) -> "RequestTemplate":
    """The judge as `darklode build` would ask it: in the form of the verdicts that are kept, or that the server obeys.

    Where there are none, no server answers and judge.mode names one, its strictest form is taken, and said.
    """
    from darklode.pipeline.judge.llm.forms import RequestTemplate
    from darklode.pipeline.judge.llm.judge import LlmJudge
    from darklode.pipeline.judge.llm.prompt import load_prompt

    settings = _llm(chosen.judge)
    impatient = settings.model_copy(update={"give_up_after": min(settings.give_up_after, _PROBE_SECONDS)})
    try:
        return RequestTemplate(
            settings, load_prompt(settings.prompt), LlmJudge(impatient, root=chosen.cache.root).template.form
        )
    except SettingsError:
        raise
    except DarklodeError as error:
        if settings.mode == "auto":
            raise DarklodeError(f"{error}. Without a server to ask, name a form: --set judge.mode=choice") from error
        form = _strictest(settings)
        reason = printable(str(error))
        console.print(f"[yellow]{reason}. The calls ask for {form} unchecked.[/yellow]", soft_wrap=True)
        return RequestTemplate(settings, load_prompt(settings.prompt), form)


def _llm(settings: JudgeSettings) -> "LlmSettings":
    from darklode.pipeline.judge.kinds.llm import LlmSettings

    if not isinstance(settings, LlmSettings):
        raise SettingsError(f"batch files are for judge.kind llm, not {settings.kind}; add --set judge.kind=llm")
    return settings


def _strictest(settings: "LlmSettings") -> "Form":
    from darklode.pipeline.judge.llm.forms import Form

    strictest = "json" if settings.rationale else "choice"
    return Form(strictest if settings.mode == "auto" else settings.mode, logprobs=True, rationale=settings.rationale)
