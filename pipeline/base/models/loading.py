"""Load sentence-transformers models from this machine or the hub, never executing code shipped with them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models import INSTALL
from darklode.pipeline.base.models.local import (
    ModelClass,
    ModelFolder,
    declares_end_token,
    fetch_hint,
    locate,
    missing_class,
    other_class,
    own_code,
    repository,
)
from darklode.schemas.pooling import LocalModel as Settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_OTHER_FORMATS = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.gguf"]


def fetch_model(settings: Settings) -> None:
    """Download a model from the hub unless it is in the local cache.

    Raises:
        MissingPart: huggingface_hub is not installed, or the download failed.
    """
    if locate(settings) is not None:
        return
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(repository(settings.model), revision=settings.revision, ignore_patterns=_OTHER_FORMATS)
    except (OSError, ValueError) as error:
        raise _download_error(settings, _reason(error)) from None


def load_model(settings: Settings, device: str) -> SentenceTransformer:
    """Load a model with the dtype and maximum length of the settings, without default prompt.

    The hub is used only if the model is neither a folder nor complete in the local cache.

    Raises:
        MissingPart: sentence-transformers or the model is missing, or the model needs its own code.
        SettingsError: max_seq_length exceeds the model's positions.
    """
    loaded: SentenceTransformer = open_model(settings, device, "SentenceTransformer")
    model = locate(settings)
    if model and declares_end_token(model.folder):
        _append_end_token(loaded, settings)
    loaded.default_prompt_name = None
    return loaded


def load_query_tower(settings: Settings, device: str) -> SentenceTransformer:
    """Load a model; of a two-tower model (Router), only the query tower."""
    loaded = load_model(settings, device)
    routes = getattr(loaded[0], "sub_modules", None)
    if routes is None or "query" not in routes:
        return loaded
    tower: SentenceTransformer = type(loaded)(modules=list(routes["query"]), device=device)
    tower.default_prompt_name = None
    return tower


def open_model(settings: Settings, device: str, kind: ModelClass) -> Any:
    """Open a sentence-transformers model with the dtype and maximum length of the settings.

    Raises:
        MissingPart: as for `load_model`.
        SettingsError: as for `load_model`, or the model is of another class.
    """
    model = locate(settings)
    _reject_custom_code(settings, model)
    _reject_other_class(model, kind)
    loaded = _open_local(settings, device, model, kind) if model else None
    if loaded is None:
        loaded = _open(settings, device, repository(settings.model), kind)
        _reject_custom_code(settings, locate(settings))
        _reject_other_class(locate(settings), kind)
    _limit(loaded, settings)
    return loaded


def _reject_other_class(model: ModelFolder | None, kind: ModelClass) -> None:
    if model and (problem := other_class(model, kind)):
        raise SettingsError(problem)


def _open_local(settings: Settings, device: str, model: ModelFolder, kind: ModelClass) -> Any:
    try:
        return _open(settings, device, str(model.folder), kind, local=True)
    except MissingPart:
        if model.is_own:
            raise
        return None  # the model is incomplete in the cache


def _open(settings: Settings, device: str, name: str, kind: ModelClass, *, local: bool = False) -> Any:
    try:
        library = import_module("sentence_transformers")
        logging = import_module("transformers.utils").logging
    except ImportError as error:
        raise MissingPart(f"model {settings.model} needs sentence-transformers: {INSTALL}") from error
    if problem := missing_class(kind):
        raise MissingPart(f"model {settings.model}: {problem}")
    opened = getattr(library, kind)
    logging.disable_progress_bar()  # it would disturb Darklode's own progress bar
    revision = None if local else settings.revision
    options = {"dtype": settings.dtype}
    try:
        return opened(name, device=device, revision=revision, local_files_only=local, model_kwargs=options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        if local:
            raise MissingPart(f"model {settings.model} in {name} cannot be loaded ({_reason(error)})") from None
        raise _download_error(settings, _reason(error)) from None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0][:200]}"


def _download_error(settings: Settings, reason: str) -> MissingPart:
    return MissingPart(f"model {settings.model} cannot be downloaded ({reason}): {fetch_hint(settings)}")


def _limit(model: Any, settings: Settings) -> None:
    if not settings.max_seq_length or _reads_all(model[0]):
        return
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    max_positions = getattr(config, "max_position_embeddings", None)
    if isinstance(max_positions, int) and settings.max_seq_length > max_positions:
        raise SettingsError(f"max_seq_length {settings.max_seq_length}: {settings.model} reads at most {max_positions}")
    model.max_seq_length = settings.max_seq_length


def _reads_all(module: Any) -> bool:
    """Whether texts of any length are read and the length cannot be set: a static embedding table."""
    length = getattr(type(module), "max_seq_length", None)
    return isinstance(length, property) and length.fset is None


def _reject_custom_code(settings: Settings, model: ModelFolder | None) -> None:
    """Raise if a model needs its own code: without it, the stock class could silently give meaningless vectors."""
    code = own_code(model.folder) if model else None
    if code:
        raise MissingPart(
            f"model {settings.model} needs its own code ({code}), which Darklode never runs: serve it with vLLM, use "
            "kind: openai (docs/guides/encoders.md), or remove auto_map from config.json in a local copy if the stock "
            "class gives the same vectors"
        )


def _append_end_token(model: SentenceTransformer, settings: Settings) -> None:
    """Make the tokenizer append the end token declared in tokenizer_config.json.

    Transformers 5 reads only tokenizer.json. Models with last-token pooling are trained with this token.
    """
    tokenizer = model.tokenizer
    tokens = tokenizer("end")["input_ids"]
    if tokenizer.eos_token_id in (None, tokens[-1]):
        return
    tokenizer.add_bos_token = tokens[0] == tokenizer.bos_token_id
    tokenizer.add_eos_token = True
    if tokenizer("end")["input_ids"][-1] != tokenizer.eos_token_id:
        raise MissingPart(f"model {settings.model}: its tokenizer does not append the end token that it declares")
