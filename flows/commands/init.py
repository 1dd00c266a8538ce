"""darklode init: a settings file for the user's own data, by questions or by options.

The settings file that `darklode init` writes: what was chosen, and beside it the settings one looks for next.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.options import PresetOption, application
from darklode.flows.config import DEFAULT_PRESET, PATHS, ConfigFile, load_settings, read_project
from darklode.flows.console import console, printable
from darklode.pipeline.base.errors import CommandLineError, InputError, NotWritable, SettingsError
from darklode.schemas.kinds import nearest
from darklode.schemas.setting_names import keys, kinds, known_keys

if TYPE_CHECKING:
    from darklode.pipeline.ingest.inspect import FormatPreview

app = application()


OFFERED = """
    ingest.queries.columns.text ingest.queries.columns.tenant ingest.documents.columns.text
    ingest.documents.columns.tenant
    clean.language clean.min_percentile clean.max_percentile clean.per_cluster clean.keep_all clean.mask_personal_data
    chunk.size
    pool.depth pool.rule pool.budget
    judge.kind judge.base_url judge.model judge.key_env judge.threshold judge.spending_limit
    split.test_share triplets.negatives
    review.query_share review.pairs validation.min_kappa validation.min_recall
    card.name card.license
""".split()
OFFERED_KIND = "llm"
"""Whose keys are offered beside those of all kinds."""

OFFERED_FOR_LOGS = """
    logs.columns.query logs.columns.doc_id logs.columns.timestamp logs.columns.clicked logs.columns.tenant
    click.model associate.max_per_query admission.hold
""".split()
"""Shown with their default and its meaning, where nothing else was chosen."""

_HEAD = """\
# Darklode: the settings of this project. A line without a # is in force; every setting that is not here, too, has its
# default: docs/settings.md lists all, `darklode status RUN --settings` shows those of a run.
#
{commands}
#
# Relative paths start at this file's folder. Keys and passwords never belong here: name their environment variable.
"""
_COMMANDS = {
    "queries": "#   darklode build --config {file}     documents and queries become a benchmark and triplets",
    "logs": "#   darklode mine --config {file}      a search log becomes triplets, night after night",
}
_MEANINGS = {
    "docs": "documents",
    "queries": "the query log",
    "logs": "the search log with its clicks",
    "out": "the benchmark's run: a folder or s3://bucket/prefix",
    "mined": "the run of the mined triplets",
}


def settings_file(name: str, paths: Mapping[str, str], preset: str, chosen: Mapping[str, Any]) -> str:
    """The file's text.

    Args:
        name: the file's, for the commands in its head.
        paths: by `PATHS`.
        preset: where the settings start from.
        chosen: dotted settings that differ from the defaults.
    """
    commands = "\n".join(line.format(file=name) for key, line in _COMMANDS.items() if key in paths)
    lines = [_HEAD.format(commands=commands), "paths:"]
    lines += [f"  {key}: {_value(paths[key])}  # {_MEANINGS[key]}" for key in PATHS if key in paths]
    lines += [f"preset: {_value(preset)}  # `darklode doctor` lists what each needs"]
    offered = OFFERED + (OFFERED_FOR_LOGS if "logs" in paths else [])
    return "\n".join([*lines, *_settings([*offered, *chosen], chosen)]) + "\n"


def _settings(paths: Collection[str], chosen: Mapping[str, Any]) -> Iterator[str]:
    """Lines of settings below those of their sections, in the schema's order; what is not in force is a comment.

    The keys of a kind that is not in force are comments twice over: they go with another kind.
    """
    in_force = {section: chosen.get(f"{section}.kind", mark.default) for section, mark in kinds()}
    defaults = dict(_defaults(in_force))
    key_by_path = {key.path: key for key in keys() if key.path in paths and key.kind in {"", OFFERED_KIND}}
    above: list[str] = []
    for path in [path for path in known_keys() if path in key_by_path]:
        key, (*sections, name) = key_by_path[path], path.split(".")
        yield from _sections(sections, above, chosen)
        above, section = sections, ".".join(sections)
        other = key.kind not in {"", in_force.get(section)}
        default = defaults.get(path, key.field.default)
        value, about = _value(chosen.get(path, default)), f"kind {key.kind}: " if other else ""
        line = f"{'  ' * len(sections)}{name}: {value}  # {about}{key.field.description}"
        yield _mark(path in chosen) + _mark(not other) + line


def _defaults(in_force: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """What the kinds in force default to: a kind may have a default of its own for a key that all kinds have."""
    for section, mark in kinds():
        if in_force[section]:
            fields = mark.section(in_force[section]).model_fields
            yield from ((f"{section}.{name}", field.default) for name, field in fields.items())


def _sections(sections: list[str], above: list[str], chosen: Mapping[str, Any]) -> Iterator[str]:
    """The heads of the sections that begin here."""
    for depth, section in enumerate(sections):
        if above[: depth + 1] != sections[: depth + 1]:
            on = any(chosen_path.startswith(".".join([*sections[: depth + 1], ""])) for chosen_path in chosen)
            yield from [*([] if depth else [""]), f"{_mark(on)}{'  ' * depth}{section}:"]


def _mark(on: bool) -> str:
    return "" if on else "# "


def _value(value: Any) -> str:
    """A value on one line: JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)


SOURCES = {"documents": "ingest.documents", "queries": "ingest.queries", "logs": "logs"}
"""The settings of what is read."""
OPTIONS = {"documents": "docs", "queries": "queries", "logs": "logs"}
NONE = "-"
"""What a person types for no path at all, where one is proposed."""

LIKELY = {
    "documents": "docs documents document handbook corpus manual manuals articles wiki pages texts".split(),
    "queries": "queries query searches questions search terms".split(),
    "logs": "logs log clicks clickstream impressions ubi searches events".split(),
}
"""Words in the names of files and folders that hold such, the likeliest first."""


@app.command(epilog="Example: darklode init --docs handbook/ --queries queries.csv --runs runs")
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The settings file to write.")] = Path("darklode.yaml"),
    *,
    docs: Annotated[str | None, typer.Option(help="Documents: a file or folder.")] = None,
    queries: Annotated[str | None, typer.Option(help="Queries, for a benchmark: a file or folder.")] = None,
    logs: Annotated[str | None, typer.Option(help="Search logs with clicks, for mining: a file or folder.")] = None,
    runs: Annotated[str | None, typer.Option(help="Where runs are to live: a folder or s3://bucket/prefix.")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="KEY=NAME", help="A column's name, e.g. queries.text=search_term."),
    ] = None,
    preset: PresetOption = None,
    judge_url: Annotated[
        str | None, typer.Option(help="OpenAI-compatible server of the judge; empty: the embedded scorer.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge's model there.")] = None,
    language: Annotated[
        str | None, typer.Option(help="Languages of the queries, such as en or en,zh; empty: all.")
    ] = None,
    license_: Annotated[str | None, typer.Option("--license", help="Licence of documents and queries.")] = None,
) -> None:
    """Write a commented settings file for your own data; it asks for what no option says."""
    if file.exists():
        raise NotWritable(f"{file} is there already; name another file, or edit that one")
    ask = _Ask()
    sources = {"docs": ask.path("documents", docs, "Documents (file or folder)")}
    sources["queries"] = ask.path("queries", queries, "Queries (file or folder; none: -)", [*sources.values()])
    sources["logs"] = ask.path("logs", logs, "Search log with clicks (file or folder; none: -)", [*sources.values()])
    if not sources["queries"] and not sources["logs"]:
        raise CommandLineError("there is nothing to do without queries or a search log: say --queries, --logs or both")
    root = ask("runs", runs, "Where runs are to live (folder or s3://…)", "runs").rstrip("/")
    chosen = ask.sources(sources, columns or [])
    chosen |= _judge(ask, judge_url, judge_model)
    likely = _likely_languages(sources["queries"], chosen) if language is None else None
    spoken = ask("language", language, "Languages of the queries (such as en, or en,zh; empty: all)", likely)
    chosen |= {"clean.language": _languages(spoken)} if spoken != "en" else {}
    licensed = ask("license", license_, "Licence of documents and queries", "unknown")
    chosen |= {"card.license": licensed} if licensed != "unknown" else {}
    sources |= {
        "out": f"{root}/benchmark" if sources["queries"] else "",
        "mined": f"{root}/mined" if sources["logs"] else "",
    }
    paths = {name: _relative_path(file, value) for name, value in sources.items() if value}
    _write(file, settings_file(str(file), paths, preset or DEFAULT_PRESET, chosen))


def _likely_languages(queries: str, chosen: Mapping[str, Any]) -> str:
    """The languages that the queries look like, comma-separated; `en` where nothing can be said of them.

    Raises:
        InputError: the queries cannot be read with the settings that were chosen.
    """
    if not queries or "://" in queries:
        return "en"
    from darklode.pipeline.ingest.input_check import first_queries
    from darklode.pipeline.prepare.language import languages_of

    settings = load_settings(
        assignments=[f"{key}={_value(value)}" for key, value in chosen.items() if "ingest." in key]
    )
    shares = languages_of(first_queries(queries, settings.ingest))
    if shares and list(shares) != ["en"]:
        looks = ", ".join(f"{share:.0%} {name}" for name, share in shares.items())
        line = f"{queries}: the language of the queries looks like {looks}; --language takes another"
        console.print(printable(line), soft_wrap=True)
    return ",".join(shares) or "en"


def _languages(spoken: str) -> list[str] | str | None:
    names = [name.strip() for name in spoken.split(",") if name.strip()]
    return names if len(names) > 1 else next(iter(names), None)


def _judge(ask: _Ask, url: str | None, model: str | None) -> dict[str, Any]:
    """Settings of the judge; the embedded one needs none."""
    server = ask("judge-url", url, "The judge: address of an OpenAI-compatible server (empty: embedded scorer)", "")
    if not server:
        return {}
    model_name = ask("judge-model", model, "The judge's model there", None)
    return {"judge.kind": "llm", "judge.base_url": [server], "judge.model": model_name}


def _relative_path(file: Path, path: str) -> str:
    """A path as the file is to name it: below its folder if it can, absolute otherwise."""
    if "://" in path:
        return path
    absolute_path, folder = Path(path).expanduser().resolve(), file.resolve().parent
    return str(absolute_path.relative_to(folder)) if absolute_path.is_relative_to(folder) else str(absolute_path)


def _write(file: Path, text: str) -> None:
    """Write the file, and read it as the other commands will."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)
    try:
        config_file: ConfigFile = read_project(file)
        load_settings(config_file.preset, file)
    except SettingsError:
        file.unlink()
        raise
    console.print(f"{printable(str(file))} is written. Next:", soft_wrap=True)
    for name, command in (("queries", "build"), ("logs", "mine")):
        if name in config_file.paths:
            console.print(f"  darklode {command} --config {printable(str(file))}", soft_wrap=True)


class _Ask:
    """Takes what an option says, and asks for the rest where there is a person to ask; each question shows a guess."""

    def __init__(self) -> None:
        self.person = sys.stdin.isatty()

    def __call__(self, option: str, value: str | None, question: str, default: str | None) -> str:
        if value is not None:
            return value
        if self.person:
            return str(typer.prompt(question, default=default, show_default=bool(default)))
        if default is None:
            raise CommandLineError(f"say --{option}: there is no terminal to ask at")
        return default

    def path(self, kind: str, value: str | None, question: str, taken: Collection[str] | None = None) -> str:
        """A path of the user's data; empty: none, which only what comes after the documents can be.

        Args:
            kind: of `SOURCES`.
            value: what the option says.
            question: for a person.
            taken: the paths that other questions have found; None: there has to be one.
        """
        usual = None if taken is None else ""
        guess = _nearby_files(kind, taken or ()) if self.person and value is None else None
        answer = self(OPTIONS[kind], value, question, guess or usual)
        return "" if answer == NONE and taken is not None else answer

    def sources(self, paths: Mapping[str, str], assignments: list[str]) -> dict[str, Any]:
        """Settings for formats and columns that names do not tell.

        Raises:
            InputError: a path holds nothing that can be read.
            CommandLineError: a column that must be there was not named, or an assignment has another form.
        """
        column_names = dict(_assignment(assignment) for assignment in assignments)
        for kind, section in SOURCES.items():
            path = paths[OPTIONS[kind]]
            if path and "://" not in path:
                column_names |= self._source(kind, path, f"{section}.columns.", column_names)
        return column_names

    def _source(self, kind: Any, path: str, columns: str, column_names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The settings that one source needs, besides what is named."""
        from darklode.pipeline.ingest.inspect import inspect_source

        roles = {key.removeprefix(columns): name for key, name in column_names.items() if key.startswith(columns)}
        preview = inspect_source(kind, path, roles)
        if kind == "logs" and self.person:
            preview = inspect_source(
                kind, path, roles, self("", None, "Format of the search log (csv, jsonl, parquet, ubi)", preview.format)
            )
        _print_preview(path, preview)
        if preview.is_declared:
            yield f"{SOURCES[kind]}.format", preview.format
        for role, guess in preview.missing.items():
            yield f"{columns}{role}", self._column(kind, role, guess, ", ".join(preview.columns))

    def _column(self, kind: str, role: str, guess: str | None, listed: str) -> str:
        option = f"--column {kind}.{role}=NAME"
        if self.person:
            return str(typer.prompt(f"Which column of the {kind} is the {role}? ({listed})", default=guess))
        if guess is None:
            raise CommandLineError(f"which column of the {kind} is the {role}? say {option}: {listed}")
        console.print(f"  {role}: column {printable(guess)}, by its name; {option} takes another", soft_wrap=True)
        return guess


def _nearby_files(kind: Any, taken: Collection[str]) -> str | None:
    """What lies in this folder, has a name as such data has, and can be read as it."""
    from darklode.pipeline.ingest.column_hints import guess_column
    from darklode.pipeline.ingest.inspect import inspect_source

    names = sorted(entry.name for entry in Path().iterdir() if not entry.name.startswith("."))
    guess = guess_column(kind, LIKELY[kind], [name for name in names if name not in taken])
    if guess is None:
        return None
    try:
        inspect_source(kind, guess)
    except InputError:
        return None
    return guess


def _print_preview(path: str, preview: FormatPreview) -> None:
    files = f"{preview.files:,} file{'s' if preview.files != 1 else ''}"
    console.print(f"{printable(path)}: {files}, {preview.format}", soft_wrap=True)
    for remark in preview.remarks:
        console.print(f"  {printable(remark)}", soft_wrap=True)


def _assignment(text: str) -> tuple[str, str]:
    role_name, equals, name = text.partition("=")
    kind, _, role = role_name.partition(".")
    if not equals or kind not in SOURCES or not role:
        raise CommandLineError(f"--column takes documents.ROLE=NAME, queries.ROLE=NAME or logs.ROLE=NAME, not {text!r}")
    columns = f"{SOURCES[kind]}.columns."
    roles = [key.removeprefix(columns) for key in known_keys() if key.startswith(columns)]
    if role not in roles:
        raise CommandLineError(f"--column {text}: there is no {kind}.{role}; {nearest(role, roles)}")
    return f"{columns}{role}", name
