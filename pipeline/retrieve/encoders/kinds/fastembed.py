"""The encoder kind `fastembed`: an ONNX model on this machine's CPU, without torch."""

from __future__ import annotations

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.onnx_models import fetch_onnx, missing_for_onnx
from darklode.pipeline.retrieve.encoders.fastembed import FastembedEncoder, FastembedModel
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind


class FastembedSettings(FastembedModel, EncoderKind):
    """An ONNX model that fastembed runs on this machine's CPU, without torch."""

    def load(self, _root: str | None = None) -> FastembedEncoder:
        return FastembedEncoder(self)

    def fetch(self) -> None:
        fetch_onnx(self, "TextEmbedding")

    def missing(self) -> list[str]:
        """Missing package or model; a model that fastembed cannot run."""
        missing = missing_for_onnx(self, "TextEmbedding")
        if not missing:
            try:
                _ = self.folder_pooling
            except SettingsError as error:
                missing = [str(error)]
        return missing


KIND = FastembedSettings
