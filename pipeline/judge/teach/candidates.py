"""Prompt folders with examples and rubric lines of people's labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from darklode.pipeline.judge.llm.prompt import Example, JudgePrompt, load_prompt
from darklode.pipeline.judge.teach.examples import TaughtPair, label_name, plain_reason

RUBRIC_HEADING = "People who checked labels of these texts corrected them for these reasons:"
DEFAULT_REASONS = {True: "People call it relevant.", False: "People call it not relevant."}
EXAMPLES_FIELD = "{examples}"


@dataclass(frozen=True)
class Candidate:
    """A changed prompt.

    Attributes:
        change: what was changed.
        folder: its prompt folder.
    """

    change: str
    folder: Path


def write_candidates(
    name: str, prompt_name: str, examples: Sequence[TaughtPair], lines: Sequence[str], scratch: Path
) -> list[Candidate]:
    """Write the prompts to compare: examples added, examples replaced, and each of these with the rubric lines.

    Args:
        name: name of each prompt's folder, which is part of the judge's id.
        prompt_name: today's prompt: a name or a path.
        examples: pairs that become examples.
        lines: lines for the instructions; without any there are two prompts.
        scratch: receives a folder per prompt, with the folder `name` in it.

    Raises:
        SettingsError: a written prompt cannot be loaded.
    """
    prompt = load_prompt(prompt_name)
    new = [_example(prompt, pair) for pair in examples]
    choices: dict[str, tuple[list[Example], Sequence[str]]] = {
        "examples added": ([*prompt.examples, *new], ()),
        "examples replaced": (new, ()),
    }
    if lines:
        choices |= {f"{change}, rubric amended": (chosen, lines) for change, (chosen, _) in choices.items()}
    candidates = []
    for number, (change, (chosen, rubric)) in enumerate(choices.items()):
        folder = scratch / str(number) / name
        _write(folder, prompt, chosen, rubric)
        load_prompt(str(folder))
        candidates.append(Candidate(change, folder))
    return candidates


def _example(prompt: JudgePrompt, pair: TaughtPair) -> Example:
    """An example; its texts are quoted where the prompt is filled, its reason here."""
    reason = prompt.quoting.quote(plain_reason(pair.reason)) or DEFAULT_REASONS[pair.positive]
    label = label_name(prompt.head.labels, prompt.head.relevant_from, pair)
    return Example(
        query=pair.query, title=pair.title, heading=pair.heading, chunk=pair.chunk, label=label, reason=reason
    )


def _write(folder: Path, prompt: JudgePrompt, examples: Sequence[Example], lines: Sequence[str]) -> None:
    folder.mkdir(parents=True)
    head = prompt.head.model_dump(by_alias=True) | {"version": prompt.head.version + 1}
    rubric = "\n".join([RUBRIC_HEADING, *(prompt.quoting.quote(line) for line in lines)]) if lines else ""
    # After the examples: the line before them may be their heading.
    system = prompt.system.replace(EXAMPLES_FIELD, f"{EXAMPLES_FIELD}\n\n{rubric}" if rubric else EXAMPLES_FIELD)
    files: dict[str, str] = {
        "prompt.yaml": _yaml(head),
        "examples.yaml": _yaml([example.model_dump(exclude_none=True) for example in examples]),
        "system.md": f"{system}\n",
        "user.md": f"{prompt.user}\n",
    }
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return text
