"""darklode init: write a commented settings file for your own data."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.options import PresetOption, application
from darklode.flows.config import PATH_NAMES, ConfigFile, installed_preset, load_settings, preset_values, read_project
from darklode.flows.console import console, printable
from darklode.pipeline.base.errors import CommandLineError, InputError, NotWritable, SettingsError
from darklode.schemas.kinds import nearest
from darklode.schemas.paths import to_absolute
from darklode.schemas.setting_names import keys, kinds, known_keys

if TYPE_CHECKING:
    from darklode.pipeline.ingest.inspect import FormatPreview

app = application()


OFFERED_KEYS = """
    ingest.queries.columns.text ingest.queries.columns.tenant ingest.documents.columns.text
    ingest.documents.columns.tenant
    clean.language clean.min_percentile clean.max_percentile clean.max_per_cluster clean.keep_all
    clean.mask_personal_data
    chunk.size
    pool.depth pool.method pool.budget
    judge.kind judge.base_url judge.model judge.api_key_env judge.threshold judge.spending_limit
    split.test_share triplets.num_negatives
    review.query_share review.max_pairs validation.min_kappa validation.min_recall
    card.name card.license
""".split()
"""Settings that the file lists, commented out unless chosen."""

OFFERED_JUDGE_KIND = "llm"
"""Judge kind whose keys are listed even if another kind is chosen."""

OFFERED_LOG_KEYS = """
    logs.columns.query logs.columns.doc_id logs.columns.timestamp logs.columns.clicked logs.columns.tenant
    click.model associate.max_lenders_per_query admission.false_alarm_rate
""".split()
"""Settings that the file lists in addition if there is a search log."""

_FILE_HEAD = """\
# Darklode settings. Lines that start with # show the preset's values; remove the # to change one. All other settings:
# docs/reference/settings.md lists their defaults, `darklode status RUN --settings` prints those of a run.
#
{commands}
#
# Relative paths start at this file's folder. Do not put keys or passwords here: name their environment variable.
"""
_COMMAND_LINES = {
    "queries": "#   darklode build --config {file}     builds a benchmark and triplets from documents and queries",
    "logs": "#   darklode mine --config {file}      mines triplets from a search log; run it every night",
}
_PATH_COMMENTS = {
    "docs": "documents",
    "queries": "query log",
    "qrels": "relevance judgments, if you have any",
    "logs": "search log with clicks",
    "out": "run folder of the benchmark, or s3://bucket/prefix",
    "mined": "run folder of the mined triplets, or s3://bucket/prefix",
}


def settings_file(name: str, paths: Mapping[str, str], preset: str, chosen: Mapping[str, Any]) -> str:
    """Render the settings file.

    Args:
        name: file name used in the example commands.
        paths: paths by the names in `PATH_NAMES`.
        chosen: dotted settings that differ from the defaults.
    """
    commands = "\n".join(line.format(file=name) for key, line in _COMMAND_LINES.items() if key in paths)
    lines = [_FILE_HEAD.format(commands=commands), "paths:"]
    lines += [f"  {key}: {_value(paths[key])}  # {_PATH_COMMENTS[key]}" for key in PATH_NAMES if key in paths]
    lines += [f"preset: {_value(preset)}  # `darklode doctor` lists the presets and their requirements"]
    offered = OFFERED_KEYS + (OFFERED_LOG_KEYS if "logs" in paths else [])
    return "\n".join([*lines, *_settings([*offered, *chosen], chosen, preset_values(preset))]) + "\n"


def _settings(paths: Collection[str], chosen: Mapping[str, Any], preset: Mapping[str, Any]) -> Iterator[str]:
    """Lines of settings in the schema's order, each below its section's line; settings not chosen are comments.

    Keys of a kind that is not active get a second #: they apply only if the kind is changed, too.
    """
    active_kinds = {
        section: chosen.get(f"{section}.kind", _nested_value(preset, f"{section}.kind", mark.default))
        for section, mark in kinds()
    }
    defaults = dict(_defaults(active_kinds))
    key_by_path = {key.path: key for key in keys() if key.path in paths and key.kind in {"", OFFERED_JUDGE_KIND}}
    above: list[str] = []
    for path in [path for path in known_keys() if path in key_by_path]:
        key, (*sections, name) = key_by_path[path], path.split(".")
        yield from _sections(sections, above, chosen)
        above, section = sections, ".".join(sections)
        is_active = key.kind in {"", active_kinds.get(section)}
        default = _nested_value(preset, path, defaults.get(path, key.field.default))
        value, about = _value(chosen.get(path, default)), "" if is_active else f"kind {key.kind}: "
        line = f"{'  ' * len(sections)}{name}: {value}  # {about}{key.field.description}"
        yield _comment_prefix(path in chosen) + _comment_prefix(is_active) + line


def _defaults(active_kinds: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Defaults by dotted name; a kind may override the default of a key that all kinds share."""
    for section, mark in kinds():
        if active_kinds[section]:
            fields = mark.section(active_kinds[section]).model_fields
            yield from ((f"{section}.{name}", field.default) for name, field in fields.items())


def _nested_value(values: Mapping[str, Any], path: str, default: Any) -> Any:
    """The value at a dotted path, or the default if there is none."""
    for name in path.split("."):
        if not isinstance(values, Mapping) or name not in values:
            return default
        values = values[name]
    return values


def _sections(sections: list[str], above: list[str], chosen: Mapping[str, Any]) -> Iterator[str]:
    """Lines that open the sections not open in the line above."""
    for depth, section in enumerate(sections):
        if above[: depth + 1] != sections[: depth + 1]:
            is_chosen = any(path.startswith(".".join([*sections[: depth + 1], ""])) for path in chosen)
            yield from [*([] if depth else [""]), f"{_comment_prefix(is_chosen)}{'  ' * depth}{section}:"]


def _comment_prefix(is_active: bool) -> str:
    return "" if is_active else "# "


def _value(value: Any) -> str:
    """A value on one line: JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)


SOURCE_SECTIONS = {"documents": "ingest.documents", "queries": "ingest.queries", "logs": "logs"}
"""Settings section of each source."""
SOURCE_OPTIONS = {"documents": "docs", "queries": "queries", "logs": "logs"}
DECLINED = "-"
"""Answer that declines a suggested path."""

FILE_NAME_HINTS = {
    "documents": "docs documents document handbook corpus manual manuals articles wiki pages texts".split(),
    "queries": "queries query searches questions search terms".split(),
    "logs": "logs log clicks clickstream impressions ubi searches events".split(),
}
"""Words in file and folder names that suggest a source, most likely first."""


@app.command(epilog="Example: darklode init --docs handbook/ --queries queries.csv --runs runs")
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Settings file to write.")] = Path("darklode.yaml"),
    *,
    docs: Annotated[str | None, typer.Option(metavar="PATH", help="Documents: a file or folder.")] = None,
    queries: Annotated[
        str | None, typer.Option(metavar="PATH", help="Queries, for a benchmark: a file or folder.")
    ] = None,
    logs: Annotated[
        str | None, typer.Option(metavar="PATH", help="Search log with clicks, for mining: a file or folder.")
    ] = None,
    runs: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Parent folder of the runs, or s3://bucket/prefix.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column", metavar="KEY=NAME", help="Name of an input column, e.g. queries.text=search_term. Repeatable."
        ),
    ] = None,
    preset: PresetOption = None,
    judge_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="OpenAI-compatible server of the judge; empty: the embedded scorer, which is no LLM."
        ),
    ] = None,
    judge_model: Annotated[str | None, typer.Option(metavar="NAME", help="Model of the judge on this server.")] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODES",
            help="Languages of the queries, e.g. en or en,zh; empty: all. Default: those of the documents.",
        ),
    ] = None,
    license_: Annotated[
        str | None, typer.Option("--license", metavar="NAME", help="License of documents and queries, e.g. cc-by-4.0.")
    ] = None,
) -> None:
    """Write a commented settings file for your own data; prompts for values that no option gives."""
    if file.exists():
        raise NotWritable(f"{file} already exists; choose another name or edit the file")
    ask = _Prompt()
    sources = {"docs": ask.path("documents", docs, "Documents (file or folder)")}
    sources["queries"] = ask.path("queries", queries, "Queries (file or folder; - for none)", [*sources.values()])
    sources["logs"] = ask.path("logs", logs, "Search log with clicks (file or folder; - for none)", [*sources.values()])
    if not sources["queries"] and not sources["logs"]:
        raise CommandLineError("queries or a search log are required: use --queries, --logs or both")
    root = ask("runs", runs, "Parent folder of the runs (folder or s3://bucket/prefix)", "runs").rstrip("/")
    chosen = ask.sources(sources, columns or [])
    chosen |= _judge(ask, judge_url, judge_model)
    chosen |= {"clean.language": _languages(language)} if language is not None else {}
    license_name = ask("license", license_, "License of documents and queries", "unknown")
    chosen |= {"card.license": license_name} if license_name != "unknown" else {}
    sources |= {
        "out": f"{root}/benchmark" if sources["queries"] else "",
        "mined": f"{root}/mined" if sources["logs"] else "",
    }
    paths = {name: _relative_path(file, value) for name, value in sources.items() if value}
    _write(file, settings_file(str(file), paths, preset or installed_preset(), chosen))


def _languages(codes: str) -> list[str] | str | None:
    names = [name.strip() for name in codes.split(",") if name.strip()]
    return names if len(names) > 1 else next(iter(names), None)


def _judge(ask: _Prompt, url: str | None, model: str | None) -> dict[str, Any]:
    """Settings of the judge; none for the embedded scorer."""
    server = ask("judge-url", url, "Judge: URL of an OpenAI-compatible server (empty: embedded scorer)", "")
    if not server:
        return {}
    model_name = ask("judge-model", model, "Model of the judge on this server", None)
    return {"judge.kind": "llm", "judge.base_url": [server], "judge.model": model_name}


def _relative_path(file: Path, path: str) -> str:
    """The path relative to the settings file's folder if it is below it, otherwise absolute."""
    if "://" in path:
        return to_absolute(path)
    absolute_path, folder = Path(path).expanduser().resolve(), file.resolve().parent
    return str(absolute_path.relative_to(folder)) if absolute_path.is_relative_to(folder) else str(absolute_path)


def _write(file: Path, text: str) -> None:
    """Write the file and load it as a check; an invalid file is removed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)
    try:
        config_file: ConfigFile = read_project(file)
        load_settings(config_file.preset, file)
    except SettingsError:
        file.unlink()
        raise
    console.print(f"Wrote {printable(str(file))}. Next:", soft_wrap=True)
    for name, command in (("queries", "build"), ("logs", "mine")):
        if name in config_file.paths:
            console.print(f"  darklode {command} --config {printable(str(file))}", soft_wrap=True)


class _Prompt:
    """Returns an option's value, or prompts for it on a terminal with a suggestion as default."""

    def __init__(self) -> None:
        self.is_interactive = sys.stdin.isatty()

    def __call__(self, option: str, value: str | None, question: str, default: str | None) -> str:
        if value is not None:
            return value
        if self.is_interactive:
            return str(typer.prompt(question, default=default, show_default=bool(default)))
        if default is None:
            raise CommandLineError(f"--{option} is required if there is no terminal")
        return default

    def path(self, kind: str, value: str | None, question: str, taken: Collection[str] | None = None) -> str:
        """Path of a source; empty if there is none.

        Args:
            kind: a key of `SOURCE_SECTIONS`.
            value: the option's value.
            question: text of the prompt.
            taken: paths already used for other sources; None if the source is required.
        """
        default = None if taken is None else ""
        guess = _nearby_files(kind, taken or ()) if self.is_interactive and value is None else None
        answer = self(SOURCE_OPTIONS[kind], value, question, guess or default)
        return "" if answer == DECLINED and taken is not None else answer

    def sources(self, paths: Mapping[str, str], assignments: list[str]) -> dict[str, Any]:
        """Settings for formats and columns that cannot be detected from names.

        Raises:
            InputError: a path contains nothing readable.
            CommandLineError: a required column was not named, or an assignment is malformed.
        """
        column_names = dict(_assignment(assignment) for assignment in assignments)
        for kind, section in SOURCE_SECTIONS.items():
            path = paths[SOURCE_OPTIONS[kind]]
            if path and "://" not in path:
                column_names |= self._source(kind, path, f"{section}.columns.", column_names)
        return column_names

    def _source(self, kind: Any, path: str, columns: str, column_names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Settings that a source needs in addition to `column_names`."""
        from darklode.pipeline.ingest.inspect import inspect_source

        roles = {key.removeprefix(columns): name for key, name in column_names.items() if key.startswith(columns)}
        preview = inspect_source(kind, path, roles)
        if kind == "logs" and self.is_interactive:
            preview = inspect_source(
                kind, path, roles, self("", None, "Format of the search log (csv, jsonl, parquet, ubi)", preview.format)
            )
        _print_preview(path, preview)
        if preview.is_declared:
            yield f"{SOURCE_SECTIONS[kind]}.format", preview.format
        for role, guess in preview.missing.items():
            yield f"{columns}{role}", self._column(kind, role, guess, ", ".join(preview.columns))

    def _column(self, kind: str, role: str, guess: str | None, listed: str) -> str:
        option = f"--column {kind}.{role}=NAME"
        if self.is_interactive:
            return str(typer.prompt(f"Which column of the {kind} is the {role}? ({listed})", default=guess))
        if guess is None:
            raise CommandLineError(f"cannot detect the {role} column of the {kind}; use {option}. Columns: {listed}")
        console.print(f"  {role}: column {printable(guess)}, from its name; {option} overrides it", soft_wrap=True)
        return guess


def _nearby_files(kind: Any, taken: Collection[str]) -> str | None:
    """A file or folder in the current folder whose name suggests this source and that is readable as one."""
    from darklode.pipeline.ingest.column_hints import guess_column
    from darklode.pipeline.ingest.inspect import inspect_source

    names = sorted(entry.name for entry in Path().iterdir() if not entry.name.startswith("."))
    guess = guess_column(kind, FILE_NAME_HINTS[kind], [name for name in names if name not in taken])
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
    if not equals or kind not in SOURCE_SECTIONS or not role:
        raise CommandLineError(f"--column takes documents.ROLE=NAME, queries.ROLE=NAME or logs.ROLE=NAME, not {text!r}")
    columns = f"{SOURCE_SECTIONS[kind]}.columns."
    roles = [key.removeprefix(columns) for key in known_keys() if key.startswith(columns)]
    if role not in roles:
        raise CommandLineError(f"--column {text}: unknown column {kind}.{role}; {nearest(role, roles)}")
    return f"{columns}{role}", name
