"""Encoders behind an OpenAI-compatible embeddings endpoint: OpenAI, Gemini, Cohere, vLLM and others."""

from __future__ import annotations

import base64
import json
from binascii import Error as NotBase64
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DarklodeError, SettingsError
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.remote.budget import Counters, SpendingLedger, Usage
from darklode.pipeline.base.remote.call_errors import BadReply, RequestRejected
from darklode.pipeline.base.remote.client import Call, Client, Lane
from darklode.pipeline.base.remote.endpoint import Endpoint
from darklode.pipeline.base.remote.tokens import TokenBatch, fill_batches
from darklode.pipeline.retrieve.encoders.embeddings_endpoint import EmbeddingsEndpoint
from darklode.pipeline.retrieve.encoders.port import Vectors

if TYPE_CHECKING:
    from openai.types import EmbeddingCreateParams

MAX_BAD_REPLIES = 6
"""Invalid replies to one request after which it counts as failed."""


class OpenAIEncoder:
    """An embeddings endpoint.

    Vectors are normalized; a blank text is not sent and gets a zero row. Texts are truncated by a token estimate that
    is high
    on purpose (`tokens.estimate_tokens`). To keep partial results, use `encode_batches`.

    Args:
        settings: settings of the encoder.
        root: root of the cache, where spending is recorded across runs; null: the user's cache folder.

    Raises:
        MissingPart: the key is missing.
        SettingsError: an invalid base_url, or a spending limit without a price.
    """

    def __init__(self, settings: EmbeddingsEndpoint, root: str | None = None) -> None:
        if settings.spending_limit is not None and not settings.price_per_million:
            raise SettingsError("spending_limit needs price_per_million: without a price nothing is ever spent")
        self.encoder_id = settings.encoder_id()
        self._settings, self._dimensions = settings, settings.dimensions
        at = _endpoint(settings)
        self._client = Client(at, SpendingLedger(root, at.account))

    @property
    def counters(self) -> Counters:
        """Usage so far."""
        return self._client.counters

    @property
    def cost(self) -> float:
        """Money spent so far."""
        return self.counters.cost

    @property
    def dimensions(self) -> int:
        """Length of a vector; determined by a request for one word if not configured."""
        if self._dimensions is None:
            list(self.encode_batches(["dimensions"]))
        assert self._dimensions
        return self._dimensions

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, shape (len(texts), dimensions)."""
        return self._all(texts, queries=True)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of documents or chunks, shape (len(texts), dimensions)."""
        return self._all(texts, queries=False)

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """Finished batches in order of arrival: indices into `texts`, and their vectors.

        Blank texts are in no batch. If a request fails permanently, batches in flight are yielded before the error is
        raised, so that nothing paid for is lost. Closing the iterator cancels the rest.

        Args:
            texts: read as batches are filled.
            queries: use prompt and parameters of queries instead of documents.
            ids: names of the texts, for error messages.

        Raises:
            DarklodeError: a request was rejected, failed for `retry_timeout` seconds, or repeatedly had an invalid
                reply (the text is named), or the spending limit would be exceeded.
        """
        with Background() as background:
            yield from background.iterate(self._batches(texts, queries, ids))

    async def _batches(self, texts: Sequence[str], queries: bool, ids: Sequence[str] | None) -> AsyncGenerator[Vectors]:
        settings = self._settings
        prompt = settings.query_prompt if queries else settings.document_prompt
        parameters = settings.query_extra_body if queries else settings.document_extra_body

        async def work(batch: TokenBatch, lane: Lane) -> Vectors:
            names = [ids[position] if ids else repr(texts[position][:60]) for position in batch.places]
            return batch.places, await self._embed(lane, batch, parameters, names)

        batches = fill_batches(texts, prompt, settings.max_input_tokens, settings.batch_size, settings.max_batch_tokens)
        async with (
            self._client.session() as session,
            aclosing(session.results(([batch] for batch in batches), work)) as results,
        ):
            async for some in results:
                for vectors in some:
                    yield vectors

    async def _embed(
        self, lane: Lane, batch: TokenBatch, parameters: Mapping[str, object], names: list[str]
    ) -> NDArray[np.float32]:
        """The batch's vectors, validated."""
        where, body = self._client.endpoint.name, json.dumps({**self._request(batch.texts), **parameters}).encode()

        def read(response: Mapping[str, Any]) -> NDArray[np.float32]:
            return read_vectors(response, names, self._dimensions)

        try:
            call = Call(body, Usage(batch.tokens, 0), f"text {names[0]}", read, {BadReply: MAX_BAD_REPLIES})
            vectors = await lane.call(call)
        except RequestRejected as error:
            if isinstance(error.failure, BadReply):
                name = error.failure.name or names[0]
                raise DarklodeError(
                    f"{where}: the reply for text {name} {error.failure.problem}, {MAX_BAD_REPLIES} times in a row. "
                    "Check that base_url is an embeddings endpoint and that the model has the requested dimensions"
                ) from None
            raise DarklodeError(
                f"{where} rejected the request, {error}; lower max_tokens, batch_tokens or batch_texts if it is about "
                "length"
            ) from None
        self._dimensions = int(vectors.shape[1])
        return vectors

    def _request(self, texts: list[str]) -> Mapping[str, object]:
        request: EmbeddingCreateParams = {"model": self._settings.model, "input": texts, "encoding_format": "base64"}
        if self._settings.dimensions:
            request["dimensions"] = self._settings.dimensions
        return dict(request)

    def _all(self, texts: Sequence[str], *, queries: bool) -> NDArray[np.float32]:
        batches = list(self.encode_batches(texts, queries=queries))
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for places, batch_vectors in batches:
            vectors[places] = batch_vectors
        return vectors


def _endpoint(settings: EmbeddingsEndpoint) -> Endpoint:
    return Endpoint(
        section="encoder",
        model=settings.model,
        base_urls=(settings.base_url,),
        path="/embeddings",
        api_key_env=settings.api_key_env,
        max_concurrency=settings.max_concurrency,
        timeout=settings.timeout,
        retry_timeout=settings.retry_timeout,
        requests_per_minute=settings.requests_per_minute,
        prompt_price=settings.price_per_million,
        spending_limit=settings.spending_limit,
    )


def read_vectors(body: Mapping[str, Any], names: Sequence[str], dimensions: int | None) -> NDArray[np.float32]:
    """Unit vectors in the order of the texts, shape (len(names), dimensions).

    Args:
        body: embeddings object of OpenAI's API, vectors as base64 or lists.
        names: names of the texts, for errors.
        dimensions: required length; None: any, but equal for all.

    Raises:
        BadReply: wrong number of vectors or dimensions, indices that are not a permutation, a value that is not
            finite, or a
            zero vector.
    """
    items = body.get("data")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadReply("has no list of vectors")
    if len(items) != len(names):
        raise BadReply(f"holds {len(items)} vectors for {len(names)} texts", names[min(len(items), len(names) - 1)])
    rows = [_vector(item, name) for item, name in zip(_order_by_index(items), names, strict=True)]
    return _check_rows(rows, names, dimensions)


def _order_by_index(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    indices = [item.get("index") for item in items]
    if all(index is None for index in indices):
        return items
    by_index = {index: item for index, item in zip(indices, items, strict=True) if isinstance(index, int)}
    if sorted(by_index) != list(range(len(items))):
        raise BadReply("numbers its vectors with other indices than 0 to n - 1")
    return [by_index[position] for position in range(len(items))]


def _vector(item: dict[str, Any], name: str) -> NDArray[np.float32]:
    value = item.get("embedding")
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        if isinstance(value, list):
            return np.array(value, np.float32).reshape(len(value))
    except (NotBase64, ValueError, TypeError, OverflowError):
        pass
    raise BadReply("has no vector of numbers", name)


def _check_rows(rows: list[NDArray[np.float32]], names: Sequence[str], dimensions: int | None) -> NDArray[np.float32]:
    expected_dim = dimensions or len(rows[0])
    for name, row in zip(names, rows, strict=True):
        if len(row) != expected_dim or not len(row):
            raise BadReply(f"has {len(row)} dimensions where {expected_dim or 'some'} are expected", name)
    vectors = np.stack(rows)
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    for wrong, problem in ((~np.isfinite(lengths), "a NaN or an infinity"), (lengths == 0, "only zeros")):
        if wrong.any():
            raise BadReply(f"has a vector with {problem}", names[int(wrong.argmax())])
    return np.asarray(vectors / lengths, np.float32)
