"""Models on this machine: where one lies, which revision it is, and what it needs, all without loading it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

from pipeline.errors import MissingPart
from schemas.settings import SentenceTransformersEncoder

INSTALL = 'pip install "darklode[neural]"'
COMMIT = re.compile(r"[0-9a-f]{40}")
_FILES = "files-"
_SMALL = 16 * 2**20
_SAMPLES = 64
_SAMPLE_BYTES = 64 * 2**10
_LOADED_AS = ("AutoModel", "AutoModelForSequenceClassification")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True)
class LocalModel:
    """A model's folder and what tells it from any other version of itself."""

    folder: Path
    revision: str

    @property
    def is_own(self) -> bool:
        """Whether it is the user's folder, not one of the hub's cache."""
        return self.revision.startswith(_FILES)


def locate(settings: SentenceTransformersEncoder) -> LocalModel | None:
    """The model in a folder or in the hub's local cache; None where it would have to be fetched.

    Raises:
        MissingPart: a path that is no folder; huggingface_hub is not installed.
    """
    folder = Path(settings.model).expanduser()
    if folder.is_dir():
        return LocalModel(folder, f"{_FILES}{_fingerprint(folder)}")
    if settings.model.startswith(("/", "./", "../", "~")):
        raise MissingPart(f"model {settings.model}: there is no such folder")
    snapshot = _snapshot(repository(settings.model), settings.revision)
    return LocalModel(snapshot, snapshot.name) if snapshot and _weights(snapshot) else None


def repository(model: str) -> str:
    """The hub's full name; a bare one belongs to `sentence-transformers`, as in that library."""
    return model if "/" in model else f"sentence-transformers/{model}"


def own_code(folder: Path) -> str | None:
    """The class in the model's own code that its configuration asks for, if any."""
    classes = _json(folder / "config.json").get("auto_map", {})
    found = [classes[name] for name in _LOADED_AS if name in classes] if isinstance(classes, dict) else []
    return str(found[0]) if found else None


def architectures(folder: Path) -> list[str]:
    """The classes that its configuration says the weights are of."""
    return [str(name) for name in _json(folder / "config.json").get("architectures") or []]


def declares_end_token(folder: Path) -> bool:
    """Whether the tokenizer's configuration asks for an end token after every text."""
    return _json(folder / "tokenizer_config.json").get("add_eos_token") is True


def parameters(settings: SentenceTransformersEncoder, model: LocalModel | None) -> int:
    """How many numbers the model has: counted in its files, else read off its name (`-8B`), else 0."""
    if model:
        return sum(_parameters(file) for file in _weights(model.folder))
    named = re.search(r"(\d+(?:\.\d+)?)([bm])\b", settings.model, re.IGNORECASE)
    return int(float(named[1]) * (1e9 if named[2].lower() == "b" else 1e6)) if named else 0


def _snapshot(name: str, revision: str | None) -> Path | None:
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 (an optional package)
    except ImportError as error:
        raise MissingPart(f"model {name} needs sentence-transformers: {INSTALL}") from error
    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or no name that a hub could know
        return None


def _weights(folder: Path) -> list[Path]:
    found = (sorted(folder.rglob(pattern)) for pattern in _WEIGHTS)
    return next((files for files in found if files), [])


def _parameters(file: Path) -> int:
    if file.suffix != ".safetensors":
        return file.stat().st_size // 4
    with file.open("rb") as stream:
        head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in head.items() if name != "__metadata__")


def _fingerprint(folder: Path) -> str:
    """Hash over names and contents of all files that shape a vector, large ones sampled: same files, same model."""
    patterns = ("*.json", "*.txt", "*.model", *_WEIGHTS)
    files = sorted({file.relative_to(folder).as_posix() for pattern in patterns for file in folder.rglob(pattern)})
    digest = sha256()
    for name in files:
        digest.update(f"{name}\0{(folder / name).stat().st_size}\0".encode())
        for block in _blocks(folder / name):
            digest.update(block)
    return digest.hexdigest()[:16]


def _blocks(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= _SMALL:
            yield stream.read()
            return
        for place in range(_SAMPLES):
            stream.seek(place * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            yield stream.read(_SAMPLE_BYTES)


def _json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
