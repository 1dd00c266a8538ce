"""From an encoder's settings to its id, to the encoder, and to what it lacks on this machine."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from urllib.parse import urlsplit

from pipeline.encoders.local_models import INSTALL, locate, own_code, parameters
from pipeline.encoders.model_loading import fetch_hint, fetch_model
from pipeline.encoders.openai_compatible import INSTALL as INSTALL_OPENAI
from pipeline.encoders.openai_compatible import OpenAIEncoder as RemoteEncoder
from pipeline.encoders.openai_compatible import endpoint, key_of, openai_id
from pipeline.encoders.port import ModelEncoder
from pipeline.encoders.sentence_transformers import SentenceTransformersEncoder as LocalEncoder
from pipeline.encoders.sentence_transformers import sentence_transformers_id
from pipeline.errors import DarklodeError
from schemas.settings import EncoderSettings, OpenAIEncoder, SentenceTransformersEncoder

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_WORKING_SHARE = 1.25
"""Memory for a batch's activations beside the weights; 32 texts of 500 characters stay well below a quarter."""
_NEEDS_GPU = 4e9
"""A model with more bytes of weights than this is too slow on a CPU to be meant."""
_CONNECT_SECONDS = 2.0


def encoder_id(settings: EncoderSettings) -> str:
    """The id that `load_encoder` would give, without loading a model and without the network.

    Raises:
        MissingPart: a model of the hub that is not in the local cache, so that its revision is not known.
        SettingsError: a base_url that cannot be used.
    """
    if isinstance(settings, OpenAIEncoder):
        return openai_id(settings)
    return sentence_transformers_id(settings)


def fetch(settings: EncoderSettings) -> None:
    """Bring what the encoder needs onto this machine, so that its id is known: a model of the hub that is not here.

    Raises:
        MissingPart: the hub does not give it.
    """
    if isinstance(settings, SentenceTransformersEncoder):
        fetch_model(settings)


def load_encoder(settings: EncoderSettings) -> ModelEncoder:
    """The encoder, ready to work; the hub is asked only for a model that is not on this machine.

    Raises:
        MissingPart: a package, key, model or GPU is missing.
        SettingsError: settings that the model or the endpoint cannot serve.
    """
    return RemoteEncoder(settings) if isinstance(settings, OpenAIEncoder) else LocalEncoder(settings)


def missing(settings: EncoderSettings) -> str | None:
    """What the encoder lacks on this machine, all in one line; None where nothing does.

    Looks at packages, keys, files and GPUs. Only an endpoint that takes no key, so one's own, is called up to see
    whether anything listens.
    """
    lacks = _lacks_remote(settings) if isinstance(settings, OpenAIEncoder) else _lacks_local(settings)
    return "; ".join(lacks) or None


def _lacks_remote(settings: OpenAIEncoder) -> list[str]:
    lacks = [] if find_spec("openai") else [INSTALL_OPENAI]
    try:
        where = endpoint(settings)
        key_of(settings)
    except DarklodeError as error:
        return [*lacks, str(error)]
    if not settings.key_env and not _listens(settings.base_url):
        lacks.append(f"no server answers at {where}")
    return lacks


def _lacks_local(settings: SentenceTransformersEncoder) -> list[str]:
    absent = [name for name in ("sentence_transformers", "torch") if not find_spec(name)]
    if absent:
        return [INSTALL]
    try:
        model = locate(settings)
    except DarklodeError as error:
        return [str(error)]
    lacks = [] if model else [f"the model is not in the local cache: {fetch_hint(settings)}"]
    code = own_code(model.folder) if model else None
    if code:
        lacks.append(f"the model relies on code of its own ({code}), which is never run: serve it with vLLM")
    needed = int(parameters(settings, model) * _BYTES[settings.dtype] * _WORKING_SHARE)
    return lacks + _lacks_memory(settings.device, needed)


def _lacks_memory(device: str, needed: int) -> list[str]:
    import torch  # noqa: PLC0415 (an optional package, and heavy)

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    about = f"about {needed / 1e9:.0f} GB of GPU memory"
    if device == "cpu":
        return []
    if not count:
        wanted = device != "auto" or needed > _NEEDS_GPU
        return [f"{about if needed else 'a CUDA GPU'}: PyTorch sees no GPU here"] if wanted else []
    number = int(device.partition(":")[2] or 0) if device != "auto" else 0
    has = torch.cuda.get_device_properties(number).total_memory
    return [f"{about}: GPU {number} has {has / 1e9:.0f} GB"] if needed > has else []


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), _CONNECT_SECONDS):
            return True
    except OSError:
        return False
