"""Loading a sentence-transformers model: from this machine, else from the hub, and never with code of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models import INSTALL
from darklode.pipeline.base.models.local import (
    ModelFolder,
    declares_end_token,
    fetch_hint,
    locate,
    own_code,
    repository,
)
from darklode.schemas.pooling import LocalModel as Settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_OTHER_FORMATS = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.gguf"]


def fetch_model(settings: Settings) -> None:
    """Bring a model of the hub onto this machine, unless it is here.

    Raises:
        MissingPart: huggingface_hub is not installed, or the hub does not give it.
    """
    if locate(settings) is not None:
        return
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(repository(settings.model), revision=settings.revision, ignore_patterns=_OTHER_FORMATS)
    except (OSError, ValueError) as error:
        raise _not_had(settings, _reason(error)) from None


def load_model(settings: Settings, device: str) -> SentenceTransformer:
    """The model, with the precision and length of the settings and without a default prompt.

    The hub is asked only for what is neither a folder nor whole in the local cache.

    Raises:
        MissingPart: sentence-transformers or the model is missing, or the model relies on code of its own.
        SettingsError: more tokens than the model has positions.
    """
    loaded: SentenceTransformer = open_model(settings, device, "SentenceTransformer")
    model = locate(settings)
    if model and declares_end_token(model.folder):
        _append_end_token(loaded, settings)
    loaded.default_prompt_name = None
    return loaded


def load_query_tower(settings: Settings, device: str) -> SentenceTransformer:
    """`load_model`, of a model of two towers (a Router) that which reads queries, alone."""
    loaded = load_model(settings, device)
    routes = getattr(loaded[0], "sub_modules", None)
    if routes is None or "query" not in routes:
        return loaded
    tower: SentenceTransformer = type(loaded)(modules=list(routes["query"]), device=device)
    tower.default_prompt_name = None
    return tower


def open_model(settings: Settings, device: str, kind: Literal["SentenceTransformer", "CrossEncoder"]) -> Any:
    """A model of sentence-transformers, with the precision and length of the settings.

    Raises:
        MissingPart: as for `load_model`.
        SettingsError: as for `load_model`.
    """
    model = locate(settings)
    _refuse_own_code(settings, model)
    loaded = _open_local(settings, device, model, kind) if model else None
    if loaded is None:
        loaded = _open(settings, device, repository(settings.model), kind)
        _refuse_own_code(settings, locate(settings))
    _limit(loaded, settings)
    return loaded


def _open_local(settings: Settings, device: str, model: ModelFolder, kind: str) -> Any:
    try:
        return _open(settings, device, str(model.folder), kind, local=True)
    except MissingPart:
        if model.is_own:
            raise
        return None  # the cache holds a part of the model only


def _open(settings: Settings, device: str, name: str, kind: str, *, local: bool = False) -> Any:
    try:
        opened = getattr(import_module("sentence_transformers"), kind)
        logging = import_module("transformers.utils").logging
    except ImportError as error:
        raise MissingPart(f"model {settings.model} needs sentence-transformers: {INSTALL}") from error
    logging.disable_progress_bar()  # it would break into Darklode's own
    revision = None if local else settings.revision
    options = {"dtype": settings.dtype}
    try:
        return opened(name, device=device, revision=revision, local_files_only=local, model_kwargs=options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        if local:
            raise MissingPart(f"model {settings.model} in {name} cannot be loaded ({_reason(error)})") from None
        raise _not_had(settings, _reason(error)) from None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0][:200]}"


def _not_had(settings: Settings, reason: str) -> MissingPart:
    return MissingPart(f"model {settings.model} cannot be had from the hub ({reason}): {fetch_hint(settings)}")


def _limit(model: Any, settings: Settings) -> None:
    if not settings.max_seq_length:
        return
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    max_positions = getattr(config, "max_position_embeddings", None)
    if isinstance(max_positions, int) and settings.max_seq_length > max_positions:
        raise SettingsError(f"max_tokens {settings.max_seq_length}: {settings.model} reads at most {max_positions}")
    model.max_seq_length = settings.max_seq_length


def _refuse_own_code(settings: Settings, model: ModelFolder | None) -> None:
    """Without its own code such a model loads as the stock class, and its vectors may be noise: no silent fallback."""
    code = own_code(model.folder) if model else None
    if code:
        raise MissingPart(
            f"model {settings.model} brings code of its own ({code}), which Darklode never runs: serve it with vLLM "
            "and name the server with kind: openai (docs/guides/encoders.md), or take auto_map out of config.json in a "
            "local copy where the stock class is known to give the same vectors"
        )


def _append_end_token(model: SentenceTransformer, settings: Settings) -> None:
    """Append the end token that tokenizer_config.json asks for.

    Transformers 5 takes it from tokenizer.json alone. Models that pool the last token are trained to pool this one.
    """
    tokenizer = model.tokenizer
    tokens = tokenizer("end")["input_ids"]
    if tokenizer.eos_token_id in (None, tokens[-1]):
        return
    tokenizer.add_bos_token = tokens[0] == tokenizer.bos_token_id
    tokenizer.add_eos_token = True
    if tokenizer("end")["input_ids"][-1] != tokenizer.eos_token_id:
        raise MissingPart(f"model {settings.model}: its tokenizer does not append the end token that it declares")
