"""fastembed's ONNX models: their files, revision and loading, on this machine or from the hub.

A model is a name in fastembed's list, whose files come from the Hugging Face hub, or a folder. Models are loaded from
the folder that their id was made of, never through fastembed's own download.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.base.models import INSTALL_LIGHT
from darklode.pipeline.base.models.local import (
    COMMIT,
    FILES_PREFIX,
    ModelFolder,
    download_hint,
    download_problems,
    fingerprint,
)
from darklode.schemas.kinds import nearest
from darklode.schemas.pooling import OnnxModel as Settings

Role = Literal["TextEmbedding", "TextCrossEncoder"]
"""fastembed's class for encoders, and its class for cross-encoders."""

_MODULES: dict[Role, str] = {
    "TextEmbedding": "fastembed",
    "TextCrossEncoder": "fastembed.rerank.cross_encoder",
}
_REGISTRIES: dict[Role, str] = {"TextEmbedding": "EMBEDDINGS_REGISTRY", "TextCrossEncoder": "CROSS_ENCODER_REGISTRY"}
_LISTS: dict[Role, str] = {"TextEmbedding": "encoders", "TextCrossEncoder": "cross-encoders"}
_TOKENIZER = "tokenizer.json"
_TOKENIZER_PATTERNS = (_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "config.json")
_HASHED_PATTERNS = ("*.json", "*.txt", "*.onnx", "*.onnx_data", "*.onnx.data", "*.bin", "*.safetensors")
_PREFERRED_GRAPHS = ("onnx/model.onnx", "model.onnx")


@dataclass(frozen=True)
class ListedModel:
    """A model of fastembed's list.

    Attributes:
        name: as fastembed spells it.
        repository: its repository on the hub.
        files: the ONNX file, relative to the repository, then the files that belong to it.
        implementation: fastembed's class, which determines the pooling.
    """

    name: str
    repository: str
    files: tuple[str, ...]
    implementation: str


@dataclass(frozen=True)
class OnnxFolder(ModelFolder):
    """A folder with an ONNX file and its tokenizer.

    Attributes:
        graph: the ONNX file, relative to the folder.
    """

    graph: str


def own_folder(settings: Settings) -> OnnxFolder | None:
    """The user's folder that the settings name; None for a name in fastembed's list.

    Raises:
        MissingPart: the folder does not exist, or has no tokenizer or not one ONNX file.
    """
    folder = Path(settings.model).expanduser()
    if not folder.is_dir():
        if settings.model.startswith(("/", "./", "../", "~")):
            raise MissingPart(f"model {settings.model}: the folder does not exist")
        return None
    missing = [name for name in _TOKENIZER_PATTERNS[:2] if not (folder / name).is_file()]
    if missing:
        raise MissingPart(f"model {settings.model}: the folder has no {' and no '.join(missing)}")
    graphs = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*.onnx"))]
    graph = next((name for name in _PREFERRED_GRAPHS if name in graphs), graphs[0] if len(graphs) == 1 else None)
    if graph is None:
        listing = f"several ONNX files ({', '.join(graphs)}) and no" if graphs else "no ONNX file, such as"
        raise MissingPart(f"model {settings.model}: the folder has {listing} {_PREFERRED_GRAPHS[0]}")
    revision = f"{FILES_PREFIX}{fingerprint(folder, _HASHED_PATTERNS)}"
    return OnnxFolder(folder, folder.resolve().name, revision, graph)


def listed_model(settings: Settings, role: Role) -> ListedModel:
    """The model's entry in fastembed's list.

    Raises:
        MissingPart: fastembed is not installed.
        SettingsError: the list has no such model.
    """
    entries = {}
    for implementation in getattr(_model_class(settings, role), _REGISTRIES[role]):
        for entry in implementation._list_supported_models():  # the public list lacks the class
            files = (entry.model_file, *entry.additional_files)
            listed = ListedModel(entry.model, entry.sources.hf or "", files, implementation.__name__)
            entries[entry.model.lower()] = listed
    model = entries.get(settings.model.lower())
    if model is None or not model.repository:
        names = sorted(entry.name for entry in entries.values() if entry.repository)
        raise SettingsError(
            f"model {settings.model} is neither a folder nor in fastembed's list of {_LISTS[role]}; "
            f"{nearest(settings.model, names)}"
        )
    return model


def locate_onnx(settings: Settings, role: Role) -> OnnxFolder | None:
    """Find the model's folder, or its snapshot in the hub's local cache; None if it must be downloaded.

    Raises:
        MissingPart: the folder does not exist or is incomplete, or fastembed is not installed.
        SettingsError: neither a folder nor in fastembed's list.
    """
    folder = own_folder(settings)
    if folder:
        return folder
    listed = listed_model(settings, role)
    try:
        snapshot = _snapshot(listed, settings.revision, local_files_only=True)
    except (OSError, ValueError):  # not in the cache
        return None
    is_complete = all((snapshot / name).is_file() for name in (*listed.files, _TOKENIZER))
    return OnnxFolder(snapshot, listed.name, snapshot.name, listed.files[0]) if is_complete else None


def fetch_onnx(settings: Settings, role: Role) -> OnnxFolder:
    """Find the model, or download it from the hub.

    Raises:
        MissingPart: fastembed is not installed, or the download failed.
        SettingsError: as for `locate_onnx`.
    """
    folder = locate_onnx(settings, role)
    if folder:
        return folder
    listed = listed_model(settings, role)
    try:
        _snapshot(listed, settings.revision)
    except Exception as error:  # connection errors of the hub's HTTP library are not OSErrors in all its versions
        reason = _reason(error)
        raise MissingPart(f"model {listed.name} cannot be downloaded ({reason}): {_hint(listed, settings)}") from None
    folder = locate_onnx(settings, role)
    if folder is None:
        raise MissingPart(f"model {listed.name}: {listed.repository} lacks one of {', '.join(listed.files)}")
    return folder


def versioned_onnx_name(settings: Settings, role: Role) -> str:
    """`name@revision`: the hub's commit, or a hash of a local folder's files; the model is not loaded.

    Raises:
        MissingPart: the model is not in the local cache, and the settings name no commit.
    """
    folder = locate_onnx(settings, role)
    if folder:
        return f"{folder.name}@{folder.revision}"
    listed = listed_model(settings, role)
    if settings.revision is None or not COMMIT.fullmatch(settings.revision):
        hint = _hint(listed, settings)
        raise MissingPart(f"model {listed.name} is not in the local cache, so its revision is unknown: {hint}")
    return f"{listed.name}@{settings.revision}"


def missing_for_onnx(settings: Settings, role: Role) -> list[str]:
    """Problems that would prevent loading the model: packages, files, an unknown name."""
    if not all(find_spec(name) for name in ("fastembed", "onnxruntime")):
        return [INSTALL_LIGHT]
    try:
        if locate_onnx(settings, role):
            return []
        return download_problems(_hint(listed_model(settings, role), settings))
    except DarklodeError as error:
        return [str(error)]


def load_onnx(settings: Settings, role: Role, pooling: str | None = None) -> Any:
    """Load the model with fastembed; the hub is used only if it is neither a folder nor in the local cache.

    Args:
        settings: the model.
        role: encoder or cross-encoder.
        pooling: pooling of an encoder in a folder.

    Raises:
        MissingPart: fastembed or the model is missing, or the model cannot be loaded.
        SettingsError: as for `locate_onnx`.
    """
    model_class = _model_class(settings, role)
    folder = fetch_onnx(settings, role)
    name = _register(model_class, folder, pooling) if folder.is_own else folder.name
    try:
        return model_class(name, specific_model_path=str(folder.folder))
    except Exception as error:  # the errors of onnxruntime and tokenizers have no common base
        reason = _reason(error)
        raise MissingPart(f"model {settings.model} in {folder.folder} cannot be loaded ({reason})") from None


def _register(model_class: Any, folder: OnnxFolder, pooling: str | None) -> str:
    """Add a folder's kind of model to fastembed's list for this process; it is loaded from its folder."""
    from fastembed.common.model_description import ModelSource, PoolingType

    name = f"darklode/{folder.graph}-{pooling}"
    if name in {entry["model"] for entry in model_class.list_supported_models()}:
        return name
    options: dict[str, Any] = {"sources": ModelSource(url=folder.folder.resolve().as_uri()), "model_file": folder.graph}
    if pooling:  # the encoder measures its dimensions and normalizes its vectors itself
        options |= {"pooling": PoolingType(pooling.upper()), "normalization": False, "dim": 0}
    model_class.add_custom_model(name, **options)
    return name


def _model_class(settings: Settings, role: Role) -> Any:
    try:
        return getattr(import_module(_MODULES[role]), role)
    except ImportError as error:
        raise MissingPart(f"model {settings.model} needs fastembed: {INSTALL_LIGHT}") from error


def _snapshot(listed: ListedModel, revision: str | None, *, local_files_only: bool = False) -> Path:
    """The folder of the model's files in the hub's local cache; files that are not there are downloaded."""
    from huggingface_hub import constants, snapshot_download

    snapshot = snapshot_download(
        listed.repository,
        revision=revision,
        cache_dir=os.environ.get("FASTEMBED_CACHE_PATH") or constants.HF_HUB_CACHE,
        allow_patterns=[*_TOKENIZER_PATTERNS, *listed.files],
        local_files_only=local_files_only,
    )
    return Path(snapshot)


def _hint(listed: ListedModel, settings: Settings) -> str:
    return download_hint(listed.repository, settings.revision, (*_TOKENIZER_PATTERNS, *listed.files))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0][:200]}"
