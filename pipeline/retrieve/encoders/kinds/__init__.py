"""Kinds of encoders with a model, one file each: settings, encoder id, loading, and what is missing."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from darklode.schemas.pooling import EncoderSettings

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.port import ModelEncoder


class EncoderKind(EncoderSettings):
    """Settings of one kind of encoder, which load the encoder."""

    @abstractmethod
    def encoder_id(self) -> str:
        """The id that `load` would give, without loading a model and without the network.

        Raises:
            MissingPart: a hub model that is not in the local cache, so its revision is unknown.
            SettingsError: an invalid base_url.
        """

    @abstractmethod
    def load(self, root: str | None = None) -> ModelEncoder:
        """Load the encoder; a model is downloaded from the hub only if it is not on this machine.

        Args:
            root: root of the cache, where a paid encoder records its spending; null: the user's cache folder.

        Raises:
            MissingPart: a package, key, model or GPU is missing.
            SettingsError: settings that the model or the endpoint does not support.
        """

    def fetch(self) -> None:
        """Download what the encoder needs, such as a hub model, so that its id is known.

        Raises:
            MissingPart: the download failed.
        """
