"""Local models: folder, revision and requirements, without loading them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Literal

from darklode.pipeline.base.errors import DarklodeError, DoesNotFit, MissingPart
from darklode.pipeline.base.models import INSTALL
from darklode.pipeline.base.models.devices import memory_problems
from darklode.pipeline.base.models.file_hashes import file_hash
from darklode.pipeline.base.remote.endpoint import is_listening
from darklode.schemas.pooling import LocalModel as Settings

PACKAGE = "package:"
"""Prefix of the import name of an installed package that contains a model."""

FILES_PREFIX = "files-"
"""Prefix of a revision that is a hash of a folder's files."""

RERANKER_FOLDER, RERANKER_RECORD = "reranker", "reranker.json"
"""Folder of the model that `train-reranker` releases, and the record beside it and in it."""

COMMIT = re.compile(r"[0-9a-f]{40}")
ModelClass = Literal["SentenceTransformer", "CrossEncoder", "SparseEncoder", "MultiVectorEncoder"]
"""Classes of sentence-transformers that load models."""

_FIRST_RELEASE = {"MultiVectorEncoder": 6}
"""First major release of sentence-transformers with a class that not all supported releases have."""
_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_WORKING_SHARE = 1.25
"""Memory for weights and activations, relative to the weights; 32 texts of 500 characters need less."""
_AUTO_CLASSES = ("AutoModel", "AutoModelForSequenceClassification")
_WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
_HASHED_PATTERNS = ("*.json", "*.txt", "*.model", "adapter_model.bin", *_WEIGHT_PATTERNS)


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder, name and revision (commit or content hash)."""

    folder: Path
    name: str
    revision: str

    @property
    def is_own(self) -> bool:
        """Whether it is a folder of the user, not of the hub's cache."""
        return self.revision.startswith(FILES_PREFIX)


def locate(settings: Settings) -> ModelFolder | None:
    """Find the model in a package, a folder or the hub's local cache; None if it must be downloaded.

    Raises:
        MissingPart: the package, the folder or huggingface_hub is missing.
    """
    if settings.model.startswith(PACKAGE):
        return _local_folder(_find_packaged(settings.model), settings.model.removeprefix(PACKAGE))
    folder = Path(settings.model).expanduser()
    if folder.is_dir():
        folder = released_reranker(folder)
        return _local_folder(folder, folder.resolve().name)
    if settings.model.startswith(("/", "./", "../", "~")):
        raise MissingPart(f"model {settings.model}: the folder does not exist")
    name = repository(settings.model)
    snapshot = _snapshot(name, settings.revision)
    return ModelFolder(snapshot, name, snapshot.name) if snapshot and _weights(snapshot) else None


def released_reranker(folder: Path) -> Path:
    """The model below an output folder of `train-reranker`; any other folder itself."""
    model = folder / RERANKER_FOLDER
    return model if (folder / RERANKER_RECORD).is_file() and (model / RERANKER_RECORD).is_file() else folder


def reranker_record(settings: Settings) -> dict[str, Any]:
    """The record of a model that `train-reranker` released: tenant, weight of its scores; empty for other models."""
    model = locate(settings)
    return _json(model.folder / RERANKER_RECORD) if model else {}


def require_tenant(settings: Settings, tenant: str) -> None:
    """Check that a model may be used for a tenant: any, unless `train-reranker` trained it on another one's data.

    Raises:
        DoesNotFit: it was.
    """
    own = reranker_record(settings).get("tenant")
    if own is not None and own != tenant:
        raise DoesNotFit(f"model {settings.model} was trained for tenant {own}, not for {tenant}")


def _local_folder(folder: Path, name: str) -> ModelFolder:
    return ModelFolder(folder, name, f"{FILES_PREFIX}{fingerprint(folder)}")


def _find_packaged(model: str) -> Path:
    """The model folder in an installed package, which is not imported."""
    name = model.removeprefix(PACKAGE)
    spec = find_spec(name) if name.isidentifier() else None
    package_paths = spec.submodule_search_locations if spec else None
    folders = [
        file.parent for package_path in package_paths or () for file in sorted(Path(package_path).rglob("modules.json"))
    ]
    if not folders:
        problem = "contains no model" if spec else f"is not installed: pip install {name.replace('_', '-')}"
        raise MissingPart(f"model {model}: the package {name} {problem}")
    return folders[0]


def versioned_name(settings: Settings) -> str:
    """`name@revision`: the hub's commit, or a hash of a local folder's files; the model is not loaded.

    Raises:
        MissingPart: the model is not in the local cache, and the settings name no commit.
    """
    model = locate(settings)
    name = model.name if model else repository(settings.model)
    revision = model.revision if model else settings.revision
    if revision is None or (model is None and not COMMIT.fullmatch(revision)):
        hint = fetch_hint(settings)
        raise MissingPart(f"model {name} is not in the local cache, so its revision is unknown: {hint}")
    return f"{name}@{revision}"


def missing_for(settings: Settings, kind: ModelClass = "SentenceTransformer") -> list[str]:
    """Problems that would prevent loading the model as this class: packages, files, custom code, memory."""
    if not all(find_spec(name) for name in ("sentence_transformers", "torch")):
        return [INSTALL, *_package_problems(settings)]
    try:
        model = locate(settings)
    except DarklodeError as error:
        return [str(error)]
    problems = [] if model else download_problems(fetch_hint(settings))
    code = own_code(model.folder) if model else None
    if code:
        problems.append(f"the model needs its own code ({code}), which is never executed: serve it with vLLM")
    problems += filter(None, [missing_class(kind), other_class(model, kind) if model else ""])
    needed = int(parameters(settings, model) * _DTYPE_BYTES[settings.dtype] * _WORKING_SHARE)
    return problems + memory_problems(settings.device, needed)


def missing_class(kind: ModelClass) -> str:
    """What is missing to load models of a class; empty if the installed sentence-transformers has it."""
    first = _FIRST_RELEASE.get(kind)
    try:
        installed = version("sentence-transformers")
    except PackageNotFoundError:
        return INSTALL
    if first is None or int(installed.partition(".")[0]) >= first:
        return ""
    return f"{kind} needs sentence-transformers {first} or newer, {installed} is installed"


def other_class(model: ModelFolder, kind: ModelClass) -> str:
    """Why a model is not one of the class: sentence-transformers would convert it, with new, random weights.

    Only sparse and multi-vector models are checked; empty if there is no problem.
    """
    if kind not in {"SparseEncoder", "MultiVectorEncoder"}:
        return ""
    declared = _declared_class(model.folder)
    described = {"SparseEncoder": "sparse (SPLADE)", "MultiVectorEncoder": "multi-vector (ColBERT)"}[kind]
    return "" if declared == kind else f"model {model.name} is no {described} model"


def _declared_class(folder: Path) -> str | None:
    """The class that the files of a sparse or multi-vector model name; None if they name none."""
    declared = _json(folder / "config_sentence_transformers.json").get("model_type")
    if declared is not None:
        return "MultiVectorEncoder" if declared == "ColBERT" else str(declared)  # PyLate's name
    modules = folder / "modules.json"
    names = architectures(folder)
    if "HF_ColBERT" in names or (modules.is_file() and '"pylate.' in modules.read_text(encoding="utf-8")):
        return "MultiVectorEncoder"  # Stanford's ColBERT, or early releases of PyLate
    return "SparseEncoder" if not modules.is_file() and any(name.endswith("ForMaskedLM") for name in names) else None


@cache
def hub_answers() -> bool:
    """Whether models can be downloaded: the hub is reachable and not disabled."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and is_listening(constants.ENDPOINT)


def download_problems(hint: str) -> list[str]:
    """Why a model that is not in the local cache cannot be downloaded; empty if it can.

    Args:
        hint: how to download it elsewhere.
    """
    from huggingface_hub import constants

    if hub_answers():
        return []
    reason = "HF_HUB_OFFLINE disables the hub" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"
    return [f"the model is not in the local cache, and {reason}: {hint}"]


def _package_problems(settings: Settings) -> list[str]:
    try:
        if settings.model.startswith(PACKAGE):
            _find_packaged(settings.model)
    except MissingPart as error:
        return [str(error)]
    return []


def fetch_hint(settings: Settings) -> str:
    """How to download the model."""
    return download_hint(repository(settings.model), settings.revision)


def download_hint(name: str, revision: str | None, files: Sequence[str] = ()) -> str:
    """How to download files of a repository on the hub; without files, all of them."""
    options = [f"--revision {revision}"] if revision else []
    command = " ".join(["hf download", name, *files, *options])
    return (
        f"on a machine with network run `{command}` (gated models: after `hf auth login`); HF_HOME sets the cache "
        "folder"
    )


def repository(model: str) -> str:
    """The full name on the hub; bare names belong to `sentence-transformers`, as in that library."""
    return model if "/" in model else f"sentence-transformers/{model}"


def own_code(folder: Path) -> str | None:
    """The custom class required by the model's configuration, if any."""
    classes = _json(folder / "config.json").get("auto_map", {})
    class_names = [classes[name] for name in _AUTO_CLASSES if name in classes] if isinstance(classes, dict) else []
    return str(class_names[0]) if class_names else None


def architectures(folder: Path) -> list[str]:
    """Model classes in its configuration."""
    return [str(name) for name in _json(folder / "config.json").get("architectures") or []]


def declares_end_token(folder: Path) -> bool:
    """Whether the tokenizer's configuration declares an end token after every text."""
    return _json(folder / "tokenizer_config.json").get("add_eos_token") is True


def parameters(settings: Settings, model: ModelFolder | None) -> int:
    """Number of parameters: counted in the files, else from the name (`-8B`), else 0."""
    if model:
        return sum(_parameters(file) for file in _weights(model.folder))
    match = re.search(r"(\d+(?:\.\d+)?)([bm])\b", settings.model, re.IGNORECASE)
    return int(float(match[1]) * (1e9 if match[2].lower() == "b" else 1e6)) if match else 0


def inner_parameters(model: ModelFolder) -> int | None:
    """Number of parameters without embeddings; None if the files do not show it."""
    files = _weights(model.folder)
    if not files or any(file.suffix != ".safetensors" for file in files):
        return None
    return int(sum(prod(tensor["shape"]) for file in files for name, tensor in _tensors(file) if "embed" not in name))


def _snapshot(name: str, revision: str | None) -> Path | None:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingPart(f"model {name} needs sentence-transformers: {INSTALL}") from error
    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or not a valid name
        return None


def _weights(folder: Path) -> list[Path]:
    weight_files = (sorted(folder.rglob(pattern)) for pattern in _WEIGHT_PATTERNS)
    return next((files for files in weight_files if files), [])


def _parameters(file: Path) -> int:
    if file.suffix != ".safetensors":
        return file.stat().st_size // 4
    return sum(prod(tensor["shape"]) for _, tensor in _tensors(file))


def _tensors(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Name, shape and dtype of each tensor, from the file's header."""
    with file.open("rb") as stream:
        head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return [(name, tensor) for name, tensor in head.items() if name != "__metadata__"]


def fingerprint(folder: Path, patterns: Sequence[str] = _HASHED_PATTERNS) -> str:
    """Hash of names and contents of all files that can change a vector."""
    files = sorted({file.relative_to(folder).as_posix() for pattern in patterns for file in folder.rglob(pattern)})
    digest = sha256()
    for name in files:
        digest.update(f"{name}\0{file_hash(folder / name)}\0".encode())
    return digest.hexdigest()[:16]


def _json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
