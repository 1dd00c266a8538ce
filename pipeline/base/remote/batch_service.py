"""Client of a batch service with OpenAI's endpoints: upload files of requests, download files of responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.base.remote.call_errors import Response, response_error
from darklode.pipeline.base.remote.endpoint import Endpoint, address

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types import Batch

MAX_SDK_RETRIES = 5
_TOKEN_KEY = "darklode"  # noqa: S105 (a metadata key)
_FINISHED_STATUSES = frozenset({"completed", "failed", "expired", "cancelled"})


class BatchNotFound(MissingPart):
    """The service does not know the file or batch, or has no batch endpoints."""


@dataclass(frozen=True)
class BatchState:
    """Status of a batch.

    Attributes:
        id: id at the service.
        status: the service's term.
        answered, failed: number of requests so far; None if the service does not count.
        files: ids of the files of responses and of errors, if there are any.
        message: reason of a failure; empty if there is none.
    """

    id: str
    status: str
    answered: int | None
    failed: int | None
    files: tuple[str, ...]
    message: str

    @property
    def is_finished(self) -> bool:
        """Whether the batch is completed, failed, expired or cancelled."""
        return self.status in _FINISHED_STATUSES


class BatchService:
    """The batch service at an endpoint's first URL.

    Args:
        endpoint: URL, key and timeout.

    Raises:
        MissingPart: the key is missing.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.where = address(endpoint.base_urls[0], endpoint.api_key_env)
        self._endpoint, self._key = endpoint, endpoint.key()

    def start(self, file: Path, token: str) -> str:
        """Upload a file of requests and start its batch; returns the batch's id.

        Args:
            file: requests for chat completions in OpenAI's batch format.
            token: identifies the batch for `find`.

        Raises:
            DarklodeError: the batch was not started, or the outcome is unknown; `find` tells.
        """
        with self._client() as client, file.open("rb") as content:
            uploaded = client.files.create(file=(f"{token}.jsonl", content), purpose="batch")
            return self._create_batch(client, uploaded.id, token)

    def _create_batch(self, client: OpenAI, file_id: str, token: str) -> str:
        import openai

        try:
            created = client.with_options(max_retries=0).batches.create(  # a retry could start the batch twice
                input_file_id=file_id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={_TOKEN_KEY: token},
            )
        except (openai.APIConnectionError, openai.InternalServerError):
            batch = self.find(token)  # it may have been started all the same
            if batch is None:
                raise
            return batch.id
        return created.id

    def find(self, token: str, since: float = 0.0) -> BatchState | None:
        """The batch that was started with a token; None if there is none.

        Args:
            token: as passed to `start`.
            since: ignore batches created before this time, in seconds since the epoch.

        Raises:
            DarklodeError: the service cannot be reached or reports an error.
        """
        with self._client() as client:
            for batch in client.batches.list(limit=100):  # newest first
                if (batch.metadata or {}).get(_TOKEN_KEY) == token:
                    return _state(batch)
                if batch.created_at < since:
                    break
        return None

    def status(self, batch_id: str) -> BatchState:
        """Status of a batch.

        Raises:
            DarklodeError: the service cannot be reached or reports an error.
        """
        with self._client() as client:
            return _state(client.batches.retrieve(batch_id))

    def download(self, file_id: str, target: Path) -> Path:
        """Download a file to a path.

        Raises:
            DarklodeError: the download failed.
        """
        with self._client() as client, client.files.with_streaming_response.content(file_id) as answer:
            answer.stream_to_file(target)
        return target

    @contextmanager
    def _client(self) -> Iterator[OpenAI]:
        """Open an SDK client; its errors are converted to ours."""
        import httpx2
        import openai

        url, seconds = self._endpoint.base_urls[0], self._endpoint.timeout
        try:
            with openai.OpenAI(
                api_key=self._key or "none", base_url=url, timeout=seconds, max_retries=MAX_SDK_RETRIES
            ) as client:
                yield client
        except openai.NotFoundError as error:
            raise BatchNotFound(
                f"{self.where} answered 404: unknown file or batch, or no batch endpoints; "
                "`darklode judge batch export` writes files for other services and for `vllm run-batch`"
            ) from error
        except openai.APIStatusError as error:
            answer = Response(error.status_code, None, error.response.content, error.response.headers.get("location"))
            fault = response_error(answer, self._key, self._endpoint.api_key_env, self._endpoint.section)
            kind = type(fault) if isinstance(fault, DarklodeError) else DarklodeError
            raise kind(f"{self.where} {fault}. Run the same command again to continue") from None
        except (openai.APIError, httpx2.HTTPError) as error:  # the latter if a download is interrupted
            raise DarklodeError(
                f"{self.where} cannot be reached ({type(error).__name__}); run the same command again to continue"
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
