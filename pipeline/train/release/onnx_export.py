"""Export of a query encoder as one ONNX graph from token ids to the final vector, with its tokenizer."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.train.release.adapter import Adapter

ONNX_FOLDER = "onnx"
GRAPH_FILE, TOKENIZER_FILE, RECORD_FILE = "model.onnx", "tokenizer.json", "about.json"
GRAPH_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
GRAPH_OUTPUT = "vector"
OPSET = 18

MAX_DIFFERENCE = 1e-4
"""Maximum absolute difference allowed between graph and model, both in float32."""

USAGE = """\
from tokenizers import Tokenizer; from onnxruntime import InferenceSession
Put about.json's `prompt` before each text, encode it by tokenizer.json, and give the graph its `inputs` as int64."""


def export(adapter: Adapter) -> float:
    """Write `onnx/` beside an adapter's `query_encoder/`, always in float32.

    Args:
        adapter: its folder.

    Returns:
        Maximum absolute difference from the model's vectors on the adapter's recorded queries.

    Raises:
        MissingPart: onnx or onnxruntime is not installed.
        DarklodeError: the folder is a head alone, the graph gives other vectors, or the tokenizer cannot be exported.
    """
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise MissingPart(f'ONNX export needs {" and ".join(missing)}: pip install "darklode[onnx]"')
    if adapter.light:
        raise DarklodeError(
            f"{adapter.store.url} is a head without an encoder; ONNX export needs a folder with {ENCODER_FOLDER}/"
        )
    model, texts = adapter.model.float().eval(), _probes(adapter)
    if not hasattr(model[0], "auto_model"):
        raise DarklodeError(
            f"{adapter.store.url} is a static student, a table of token vectors, which is not exported to ONNX; "
            f"load {ENCODER_FOLDER}/ with sentence-transformers"
        )
    with tempfile.TemporaryDirectory(prefix="darklode-onnx-") as scratch:
        folder = Path(scratch)
        prompt = model.prompts.get(model.default_prompt_name or "", "")
        _tokenizer(model).save(str(folder / TOKENIZER_FILE))
        inputs = _export_graph(model, [prompt + text for text in texts], folder / GRAPH_FILE)
        about = {"prompt": prompt, "inputs": inputs, "output": GRAPH_OUTPUT, "how": USAGE}
        (folder / RECORD_FILE).write_text(json.dumps(about))
        difference = float(np.abs(vectors(folder, texts) - adapter.encode(texts)).max())
        if difference > MAX_DIFFERENCE:
            raise DarklodeError(
                f"the ONNX graph gives other vectors than the model (by {difference:.1e}), so it is not exported"
            )
        adapter.store.delete_folder(ONNX_FOLDER)
        for path in sorted(folder.iterdir()):
            if path.name != RECORD_FILE:
                adapter.store.write(f"{ONNX_FOLDER}/{path.name}", path.read_bytes())
        record = json.dumps(about | {"difference": difference, "adapter": adapter.id}, indent=1, ensure_ascii=False)
        adapter.store.write(f"{ONNX_FOLDER}/{RECORD_FILE}", record.encode())
    return difference


def vectors(folder: Path, texts: Sequence[str]) -> Floats:
    """Vectors of texts by the graph in a folder, shape (len(texts), dimensions)."""
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    about = json.loads((folder / RECORD_FILE).read_text())
    encodings = Tokenizer.from_file(str(folder / TOKENIZER_FILE)).encode_batch(
        [about["prompt"] + text for text in texts]
    )
    columns = {
        "input_ids": [encoding.ids for encoding in encodings],
        "attention_mask": [encoding.attention_mask for encoding in encodings],
        "token_type_ids": [encoding.type_ids for encoding in encodings],
    }
    inputs = {name: np.array(columns[name], np.int64) for name in about["inputs"]}
    (encoded,) = InferenceSession(str(folder / GRAPH_FILE)).run([about["output"]], inputs)
    return np.asarray(encoded, np.float32)


def _probes(adapter: Adapter) -> list[str]:
    """The recorded queries, and one that exceeds the maximum length."""
    texts = [row["text"] for index in adapter.facts["indexes"] for row in index["queries"]]
    return [*texts, " ".join(texts * 50)]


def _tokenizer(model: Any) -> Any:
    """The model's fast tokenizer, with truncation and padding set.

    Raises:
        DarklodeError: the model has none.
    """
    from tokenizers import Tokenizer

    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise DarklodeError(f"{type(tokenizer).__name__} cannot be saved as {TOKENIZER_FILE}: only fast tokenizers can")
    exported = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    exported.enable_truncation(model.max_seq_length or tokenizer.model_max_length)
    exported.enable_padding(
        direction=tokenizer.padding_side, pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token
    )
    return exported


def _export_graph(model: Any, texts: list[str], file: Path) -> list[str]:
    """Trace the model on example texts; returns the names of the inputs."""
    import torch

    features = (getattr(model, "preprocess", None) or model.tokenize)(texts)
    names = [name for name in GRAPH_INPUTS if name in features]

    class EncoderGraph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            features = dict(zip(names, inputs, strict=True))
            for module in self.model:
                features = module(features)
            return features["sentence_embedding"]

    axes = {name: {0: "batch", 1: "length"} for name in names} | {GRAPH_OUTPUT: {0: "batch"}}
    with _ignore_warnings():
        torch.onnx.export(
            EncoderGraph(),
            tuple(features[name] for name in names),
            str(file),
            input_names=names,
            output_names=[GRAPH_OUTPUT],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,  # the other exporter needs onnxscript
        )
    return names


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Suppress tracing warnings; correctness is checked by comparing vectors."""
    logger = getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
