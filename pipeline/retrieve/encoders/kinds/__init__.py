"""Encoders with a model, a file each: a kind's settings, its id, how it is loaded and what it lacks here."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from darklode.schemas.pooling import EncoderSettings

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.port import ModelEncoder


class EncoderKind(EncoderSettings):
    """Settings of one kind of encoder, and how they become an encoder."""

    @abstractmethod
    def encoder_id(self) -> str:
        """The id that `load` would give, without loading a model and without the network.

        Raises:
            MissingPart: a model of the hub that is not in the local cache, so that its revision is not known.
            SettingsError: a base_url that cannot be used.
        """

    @abstractmethod
    def load(self, root: str | None = None) -> ModelEncoder:
        """The encoder, ready to work; the hub is asked only for a model that is not on this machine.

        Args:
            root: of the cache, where an encoder whose calls cost keeps what it spent; null: the user's cache folder.

        Raises:
            MissingPart: a package, key, model or GPU is missing.
            SettingsError: settings that the model or the endpoint cannot serve.
        """

    def fetch(self) -> None:
        """Bring what the encoder needs onto this machine, so that its id is known: a model of the hub, say.

        Raises:
            MissingPart: it cannot be had.
        """
