"""darklode judge teach: change an LLM judge's prompt by people's labels, and test it on other queries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from darklode.flows.commands.judge_options import settings_of
from darklode.flows.commands.options import JsonOption, RunArgument, SetOption
from darklode.flows.output import Answer, answering
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import InputError, NotBetter, SettingsError

if TYPE_CHECKING:
    from darklode.pipeline.judge.teach.teaching import TeachingResult


def teach(
    run: RunArgument,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the changed prompt.")],
    examples: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of new examples.")] = 4,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add people's corrections to a judge's prompt; exit code 3 if not better."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.judge.kinds.llm import LlmJudgeKind
    from darklode.pipeline.judge.teach.prompted_judge import PromptedJudge
    from darklode.pipeline.judge.teach.teaching import teach as teach_judge
    from darklode.pipeline.validate.taught_pairs import taught_pairs

    settings = settings_of(run, assignments)
    if not isinstance(settings.judge, LlmJudgeKind) or settings.judge.panel:
        raise SettingsError(
            "`judge teach` changes the prompt of a single judge of kind llm; other judges learn from labels with "
            "`darklode build --human labels.csv` (judge.kind=learned, or judge.threshold=fitted)"
        )
    if to.exists():
        raise InputError(f"{to} exists; give a new folder to --to")
    judge = PromptedJudge(settings.judge, settings.cache)
    pairs = taught_pairs(all_tables(Run(run)))
    prompt = settings.judge.prompt
    with answering(as_json) as answer:
        result = teach_judge(pairs, judge, prompt, to.name, n_examples=examples, seed=settings.seed)
        summarize(result, judge.n_requested, answer)
        if not result.held_out.is_better:
            answer.fact("adopted", False)
            raise NotBetter(
                f"the changed prompt ({result.change}) is not shown to be better than {prompt}: difference in kappa "
                f"{_difference(result)}; nothing was written. Review more pairs, or change the prompt by hand"
            )
        to.mkdir(parents=True)
        for name, text in result.files.items():
            (to / name).write_text(text, encoding="utf-8")
        # A bare name may be that of a built-in prompt.
        path = to if len(to.parts) > 1 else f"./{to}"
        answer.fact("adopted", True, f"Wrote {to}. To use it: --set judge.prompt={path}")


def summarize(result: "TeachingResult", n_requested: int, answer: Answer) -> None:
    """Examples, prompts tried and the comparison on held-out queries."""
    chosen = [
        {"query": pair.query, "judge": pair.relevant, "people": pair.relevance, "reason": pair.reason}
        for pair in result.examples
    ]
    answer.table("examples", pa.Table.from_pylist(chosen), "New examples: errors of the judge")
    tried = [{"prompt": change, "kappa": kappa} for change, kappa in result.tried.items()]
    answer.table("tried", pa.Table.from_pylist(tried), "Changed prompts, on the other teaching queries")
    held_out = result.held_out
    figures = {
        "change": result.change,
        "kappa_today": held_out.today,
        "kappa": held_out.candidate,
        "low": held_out.low,
        "high": held_out.high,
        "pairs": held_out.pairs,
        "queries": held_out.queries,
        "unreadable_today": held_out.unreadable_today,
        "unreadable": held_out.unreadable,
        "left_out": held_out.left_out,
    }
    sentence = (
        f"Held-out queries ({held_out.queries:,}, {held_out.pairs:,} pairs): kappa {held_out.today:.3f} today, "
        f"{held_out.candidate:.3f} with {result.change}; difference {_difference(result)}."
    )
    if held_out.left_out:
        sentence += (
            f" {held_out.left_out:,} other pairs are left out for both prompts: unreadable replies to "
            f"{held_out.unreadable_today:,} with today's prompt, {held_out.unreadable:,} with {result.change}."
        )
    answer.fact("held_out", figures, sentence)
    answer.fact("requests", n_requested, f"{n_requested:,} pairs requested; their replies are in the ledger.")


def _difference(result: "TeachingResult") -> str:
    held_out = result.held_out
    difference = held_out.candidate - held_out.today
    return f"{difference:+.3f} [{held_out.low:+.3f}, {held_out.high:+.3f}]"
