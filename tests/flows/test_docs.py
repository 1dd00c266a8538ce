"""The pages say what is there: their commands are commands, and their links lead somewhere."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer.main

from darklode.flows.cli import app
from darklode.flows.config import load_settings
from darklode.flows.jobs import (
    adapt_encoder,
    build_benchmark,
    build_index,
    compare_adapters,
    distil_judge,
    evaluate_systems,
    generate_queries,
    mine_logs,
    plan_laws,
    run_laws,
    swap_model,
    train_both_towers,
    train_reranker,
    train_towers,
    validate_benchmark,
)
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.generate.kinds.ict import InverseClozeWriter
from darklode.pipeline.laws.label_plan import PlanRequest
from darklode.pipeline.laws.plan_stage import PlanInputs
from darklode.pipeline.report.funnel import FUNNEL_STAGE, funnel
from darklode.schemas.run_inputs import RerankerInputs
from darklode.schemas.setting_names import known_keys
from helpers.runs import REPOSITORY

BASE: Any = SimpleNamespace(sources=(), start=None, encoder=None)  # the steps name it, and ask it for nothing else
PAIR: Any = SimpleNamespace()  # likewise
MODEL: Any = SimpleNamespace()
NO_TABLES: Any = SimpleNamespace()
RERANKER = RerankerInputs(runs=[], base="", encoder="", candidates=5)
SOURCE: Any = SimpleNamespace()
FUNNEL = Step(FUNNEL_STAGE, call(funnel, ()))
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
FENCES = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"""^(?:\$ )?(?:\.venv/bin/)?darklode ((?:'[^']*'|"[^"]*"|[^'"\n&|;])*)""", re.MULTILINE)
DARKLODE = typer.main.get_command(app)


def commands(page: Path) -> list[list[str]]:
    """Every call of `darklode` in the page's shell blocks, as words; an ellipsis stands for words left out."""
    blocks = [
        block for kind, block in FENCES.findall(page.read_text(encoding="utf-8")) if kind in {"", "sh", "console"}
    ]
    calls = [call for block in blocks for call in CALL.findall(block.replace("\\\n", " "))]
    return [[word for word in shlex.split(call, comments=True) if word not in {"…", "..."}] for call in calls]


def anchors(page: Path) -> set[str]:
    """What a link may name on the page: its headings, as a Git host makes anchors of them."""
    text = FENCES.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


CALLS = [
    (page.name, call) for page in PAGES for call in commands(page) if page.name not in {"CHANGELOG.md", "commands.md"}
]


def mistake(call: list[str]) -> str:
    """What is wrong with a call; nothing where it can be given."""
    command: Any = DARKLODE
    words = list(call)
    while hasattr(command, "commands"):
        name = words.pop(0)
        if name == "--version":
            return ""
        if name not in command.commands and hasattr(command, "default"):
            words.insert(0, name)
            is_swap = "model-swap" in command.commands and {"--from", "--onto"} & set(words)
            name = "model-swap" if is_swap else command.default
        if name not in command.commands:
            return f"there is no command {name}"
        command = command.commands[name]
    known = {option for one in command.params for option in [*one.opts, *one.secondary_opts]} | {"--help"}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    return f"{command.name} has no {given - known}" if given - known else ""


def test_every_command_on_a_page_can_be_given() -> None:
    assert not [f"{page}: {shlex.join(call)}: {mistake(call)}" for page, call in CALLS if mistake(call)]


def test_pages_have_commands() -> None:
    assert len(CALLS) > 50
    assert {"README.md", "tutorial.md", "judge.md", "mine.md"} <= {page for page, _ in CALLS}


def lost(page: Path) -> list[str]:
    """The page's links that lead nowhere."""
    text = FENCES.sub("", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [one for one in targets if not one.startswith(("http://", "https://")) and not leads(page, one)]


def leads(page: Path, target: str) -> bool:
    """Whether there is such a file, with such a heading."""
    file, _, anchor = target.partition("#")
    found = (page.parent / file).resolve() if file else page
    return found.exists() and (not anchor or anchor in anchors(found))


def test_links_lead_somewhere() -> None:
    assert len(PAGES) > 20
    assert not {str(page.relative_to(REPOSITORY)): lost(page) for page in PAGES if lost(page)}


OURS = re.compile(r"`((?:benchmarks|data|docs|flows|pipeline|prompts|schemas|src|tests)/[\w./-]*)`")


def test_the_files_that_pages_name_are_there() -> None:
    named = {(page.name, path) for page in PAGES for path in OURS.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    made = ("data/runs", "data/cache")  # by commands
    assert not {one for one in named if not one[1].startswith(made) and not (REPOSITORY / one[1]).exists()}


SETTINGS = set(known_keys())
SECTIONS = "|".join(sorted({key.partition(".")[0] for key in SETTINGS}))
NAMED = re.compile(rf"`((?:{SECTIONS})\.[a-z_]\w*(?:\.\w+)*)|--set '?([\w.]+)=")
FILES = (".faiss", ".json", ".md")


def is_setting(name: str) -> bool:
    """Whether it is a setting, a section, or a key within a free mapping such as judge.extra_body."""
    path = re.sub(r"^(encoders|retrievers)\.(\w+)", r"\1.NAME", name).removesuffix(".COLUMN")
    return any(path == key or key.startswith(f"{path}.") for key in SETTINGS) or path.rpartition(".")[0] in SETTINGS


def test_the_settings_that_pages_name_exist() -> None:
    elsewhere = {"CHANGELOG.md", "CONTRIBUTING.md", "benchmarks.md", "extend.md"}  # former names; settings of a plug-in
    pages = [page for page in PAGES if page.name not in elsewhere]
    named = {
        (str(page.relative_to(REPOSITORY)), name)
        for page in pages
        for match in NAMED.findall(page.read_text(encoding="utf-8"))
        for name in match
        if name and name != "KEY" and not name.endswith(FILES)
    }
    assert len(named) > 150
    assert not {place for place in named if not is_setting(place[1])}


def test_the_tables_of_stages_are_the_jobs() -> None:
    """Each job in the order of its steps, with what each stage reads and writes."""
    page = (REPOSITORY / "docs" / "reference" / "stages.md").read_text(encoding="utf-8")
    settings = load_settings()
    jobs = (
        [*build_benchmark.steps(".", ".", settings, qrels="."), FUNNEL],
        validate_benchmark.steps(Run("."), settings),
        evaluate_systems.steps(settings),
        adapt_encoder.steps(BASE, settings),
        compare_adapters.steps(BASE, settings, [], 1),
        swap_model.steps(SimpleNamespace(old=BASE), [], settings),
        train_both_towers.steps(BASE, settings),
        train_towers.steps(BASE, PAIR, [], settings),
        train_reranker.steps(BASE, MODEL, RERANKER, settings),
        distil_judge.steps(Run("."), NO_TABLES, "", MODEL, settings),
        run_laws.steps([BASE], settings),
        plan_laws.steps(PlanInputs("default"), PlanRequest(), None, [], settings, 0),
        generate_queries.steps(SOURCE, InverseClozeWriter(), settings),
        build_index.steps(Run("."), BASE, settings, None),
        [*mine_logs.steps(Run("."), ".", ".", settings), FUNNEL],
    )
    tables = re.findall(r"^\| stage \| reads .*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert len(tables) == len(jobs)
    for table, job in zip(tables, jobs, strict=True):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        assert [row[0] for row in rows] == [step.stage.name for step in job]
        for (name, reads, writes, _), step in zip(rows, job, strict=True):
            assert {*step.stage.reads, *step.stage.consults} <= set(reads.split(", ")), name
            assert tuple(writes.split(", ")) == step.stage.writes, name
