"""A hosted batch service, by OpenAI's endpoints: files of calls go up, files of answers come down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.base.remote.call_errors import Response, fault_of_response
from darklode.pipeline.base.remote.endpoint import Endpoint, address

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types import Batch

RETRIES = 5
_TOKEN = "darklode"  # noqa: S105 (a name of metadata)
_OVER = frozenset({"completed", "failed", "expired", "cancelled"})


class UnknownToService(MissingPart):
    """The service has no such file or batch, or offers none."""


@dataclass(frozen=True)
class BatchState:
    """How far a service is with a batch.

    Attributes:
        id: at the service.
        status: in the service's word.
        answered, failed: calls so far; null where the service does not count.
        files: of answers and of failed calls, as far as there are any.
        message: why it failed; empty: it did not, or nothing was said.
    """

    id: str
    status: str
    answered: int | None
    failed: int | None
    files: tuple[str, ...]
    message: str

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self.status in _OVER


class BatchService:
    """The service at an endpoint's first address.

    Args:
        endpoint: its address, its key, and seconds for a whole call.

    Raises:
        MissingPart: the key is missing.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.where = address(endpoint.base_urls[0], endpoint.key_env)
        self._endpoint, self._key = endpoint, endpoint.key()

    def start(self, file: Path, token: str) -> str:
        """Upload a file of calls and begin its batch; the batch's id.

        Args:
            file: in the format of OpenAI's batches, for chat completions.
            token: by which `find` knows the batch again.

        Raises:
            DarklodeError: it has not begun, or nobody knows: `find` will.
        """
        with self._client() as client, file.open("rb") as content:
            uploaded = client.files.create(file=(f"{token}.jsonl", content), purpose="batch")
            return self._find_started(client, uploaded.id, token)

    def _find_started(self, client: OpenAI, file_id: str, token: str) -> str:
        import openai

        try:
            begun = client.with_options(max_retries=0).batches.create(  # sent again, it might begin twice
                input_file_id=file_id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={_TOKEN: token},
            )
        except (openai.APIConnectionError, openai.InternalServerError):
            batch = self.find(token)  # it may have begun all the same
            if batch is None:
                raise
            return batch.id
        return begun.id

    def find(self, token: str, since: float = 0.0) -> BatchState | None:
        """The batch that was begun with a token; None where there is none.

        Args:
            token: given to `start`.
            since: the time, in seconds of the epoch, before which no batch is looked at.

        Raises:
            DarklodeError: the service does not say.
        """
        with self._client() as client:
            for batch in client.batches.list(limit=100):  # the newest first
                if (batch.metadata or {}).get(_TOKEN) == token:
                    return _state(batch)
                if batch.created_at < since:
                    break
        return None

    def look(self, batch_id: str) -> BatchState:
        """How far a batch is.

        Raises:
            DarklodeError: the service does not say.
        """
        with self._client() as client:
            return _state(client.batches.retrieve(batch_id))

    def download(self, file_id: str, target: Path) -> Path:
        """Write a file of the service's to a path.

        Raises:
            DarklodeError: it did not come whole.
        """
        with self._client() as client, client.files.with_streaming_response.content(file_id) as answer:
            answer.stream_to_file(target)
        return target

    @contextmanager
    def _client(self) -> Iterator[OpenAI]:
        """A client for one errand; what goes wrong with it is told in our words."""
        import httpx2
        import openai

        url, seconds = self._endpoint.base_urls[0], self._endpoint.timeout
        try:
            with openai.OpenAI(
                api_key=self._key or "none", base_url=url, timeout=seconds, max_retries=RETRIES
            ) as client:
                yield client
        except openai.NotFoundError as error:
            raise UnknownToService(
                f"{self.where} answered 404: it knows no such file or batch, or offers none; "
                "`darklode judge batch export` writes files for other services and for `vllm run-batch`"
            ) from error
        except openai.APIStatusError as error:
            answer = Response(error.status_code, None, error.response.content, error.response.headers.get("location"))
            fault = fault_of_response(answer, self._key, self._endpoint.key_env, self._endpoint.section)
            kind = type(fault) if isinstance(fault, DarklodeError) else DarklodeError
            raise kind(f"{self.where} {fault}. The same command goes on from here") from None
        except (openai.APIError, httpx2.HTTPError) as error:  # the latter where a download breaks off
            raise DarklodeError(
                f"{self.where} cannot be reached ({type(error).__name__}); the same command goes on from here"
            ) from None


def _state(batch: Batch) -> BatchState:
    counts, errors = batch.request_counts, (batch.errors and batch.errors.data) or []
    return BatchState(
        batch.id,
        batch.status,
        counts.completed if counts else None,
        counts.failed if counts else None,
        tuple(file for file in (batch.output_file_id, batch.error_file_id) if file),
        "; ".join(str(error.message) for error in errors),
    )
