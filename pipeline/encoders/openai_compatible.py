"""Encoders behind an OpenAI-compatible embeddings endpoint: OpenAI, Gemini, Cohere, vLLM and others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders.batching import ESTIMATE, Batch, fill
from pipeline.encoders.identity import identity, short_hash
from pipeline.encoders.in_flight import InFlight
from pipeline.encoders.port import Vectors
from pipeline.encoders.remote import Remote
from pipeline.encoders.spending import Spending
from pipeline.endpoint import address, key_from
from pipeline.errors import MissingPart, SettingsError
from schemas.settings import OpenAIEncoder as Settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

INSTALL = "pip install openai"


def openai_id(settings: Settings) -> str:
    """The encoder's id, from the settings alone.

    Raises:
        SettingsError: `base_url` is no plain http or https address.
    """
    return identity(
        settings.kind,
        f"{settings.model}@{endpoint(settings)}",
        dimensions=settings.dimensions or "all",
        prompts=short_hash(settings.query_prompt, settings.document_prompt),
        parameters=short_hash(settings.query_parameters, settings.document_parameters),
        tokens=f"{settings.max_tokens}.{ESTIMATE}",
    )


def endpoint(settings: Settings) -> str:
    """Host, port and path of the endpoint, for ids and messages.

    Raises:
        SettingsError: `base_url` is no plain http or https address.
    """
    return address(settings.base_url, settings.key_env)


def key_of(settings: Settings) -> str:
    """The key from the environment; empty where none is to be sent.

    Raises:
        MissingPart: the variable is not set.
    """
    return key_from(settings.key_env, f"model {settings.model} at {endpoint(settings)}")


class OpenAIEncoder:
    """An endpoint behind the port.

    Vectors come back scaled to length 1; a blank text is not sent and gets a zero row. Texts are cut by an estimate of
    their tokens that is high on purpose (`batching.estimate_tokens`). Where a run may fail half-way, use
    `encode_batches` and keep each batch as it comes.

    Args:
        settings: of the encoder.

    Raises:
        MissingPart: the package or the key is missing.
        SettingsError: a base_url that cannot be used, a spending limit without a price.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.spending_limit is not None and not settings.price_per_million:
            raise SettingsError("spending_limit needs price_per_million: without a price nothing is ever spent")
        self.encoder_id = openai_id(settings)
        self._settings = settings
        self._key = key_of(settings)
        self._remote = Remote(settings, self._key, f"{settings.model} at {endpoint(settings)}")
        self._client()  # a missing package is reported here, before any work

    @property
    def spending(self) -> Spending:
        """Tokens and cost of all requests so far."""
        return self._remote.spending

    @property
    def cost(self) -> float:
        """Money spent by all requests so far."""
        return self.spending.cost

    @property
    def dimensions(self) -> int:
        """Length of a vector; asked of the endpoint with a request for one word where the settings leave it open."""
        if self._remote.dimensions is None:
            list(self.encode_batches(["dimensions"]))
        assert self._remote.dimensions
        return self._remote.dimensions

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, shape (len(texts), dimensions)."""
        return self._all(texts, queries=True)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of documents or chunks, shape (len(texts), dimensions)."""
        return self._all(texts, queries=False)

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """Finished batches in the order of their arrival: places among `texts`, and their vectors.

        Blank texts are in none. When a request fails for good, the batches still under way are handed on before the
        error is raised, so that nothing paid for is lost. Closing the iterator cancels the rest.

        Args:
            texts: read as batches are filled.
            queries: prompt and parameters of queries instead of documents.
            ids: names of the texts, for error messages.

        Raises:
            DarklodeError: see `Remote.embed`.
        """
        given = self._settings
        prompt = given.query_prompt if queries else given.document_prompt
        parameters: dict[str, object] = dict(given.query_parameters if queries else given.document_parameters)

        async def work(client: AsyncOpenAI, batch: Batch, stop: asyncio.Event) -> Vectors:
            names = [ids[place] if ids else repr(texts[place][:60]) for place in batch.places]
            reply = await self._remote.embed(client, batch, parameters, names, stop)
            return batch.places, reply.vectors

        batches = fill(texts, prompt, given.max_tokens, given.batch_texts, given.batch_tokens)
        yield from InFlight(self._client, work, given.in_flight).results(batches)

    def _all(self, texts: Sequence[str], *, queries: bool) -> NDArray[np.float32]:
        batches = list(self.encode_batches(texts, queries=queries))
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for places, found in batches:
            vectors[places] = found
        return vectors

    def _client(self) -> AsyncOpenAI:
        try:
            from openai import AsyncOpenAI  # noqa: PLC0415 (an optional package)
        except ImportError as error:
            raise MissingPart(f"model {self._settings.model} needs the openai client: {INSTALL}") from error
        return AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self._settings.base_url,
            timeout=self._settings.timeout,
            max_retries=0,
        )
