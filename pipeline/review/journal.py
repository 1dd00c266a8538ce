"""The answers of reviewers, one small file each: never changed, deleted, or lost with the process."""

import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pyarrow as pa

from pipeline.artifacts import Store
from pipeline.errors import ArtifactError
from schemas.review_tables import REVIEWS

FOLDER = "review/answers"
_READERS = 16  # files read at once: on S3 each is a request


@dataclass(frozen=True)
class Answer:
    """What one reviewer said of one pair, at one moment.

    Attributes:
        relevance: 0, or a grade from 1; None where the pair was skipped.
        judge_shown: the reviewer could see the judge's verdict.
        undone: takes back what this reviewer said of the pair before; the other values then mean nothing.
    """

    tenant: str
    query_id: str
    chunk_id: str
    reviewer: str
    relevance: int | None
    answered_at: datetime
    rationale: str | None = None
    judge_shown: bool = False
    undone: bool = False

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The pair and its reviewer."""
        return self.tenant, self.query_id, self.chunk_id, self.reviewer


class Journal:
    """The answers of a run, in the order given; several processes may add to it at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = 0

    def append(self, answer: Answer) -> None:
        """Keep an answer; it is on disk, whole, when this returns."""
        self._last = max(time.time_ns(), self._last + 1)
        said = asdict(answer) | {"answered_at": answer.answered_at.astimezone(UTC).isoformat()}
        name = f"{FOLDER}/{self._last:020d}-{uuid4().hex}.json"
        self._store.write(name, json.dumps(said, ensure_ascii=False).encode())

    def read(self) -> list[Answer]:
        """Every answer, those that were taken back included.

        Raises:
            ArtifactError: a file there is no answer.
        """
        names = sorted(name for name in self._store.sizes(FOLDER) if name.endswith(".json"))
        with ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(self._load, names))

    def _load(self, name: str) -> Answer:
        try:
            said = json.loads(self._store.read(name) or b"")
            return Answer(**said | {"answered_at": datetime.fromisoformat(said["answered_at"])})
        except (ValueError, TypeError, KeyError) as error:
            raise ArtifactError(
                f"{self._store.path(name)} is no answer of a reviewer ({error}); move it away"
            ) from error


def standing(answers: Iterable[Answer]) -> pa.Table:
    """Rows of `reviews` by their key: each reviewer's last answer to a pair, unless it was taken back."""
    last = {answer.key: answer for answer in answers}
    kept = [last[key] for key in sorted(last) if not last[key].undone]
    return REVIEWS.rows({name: [getattr(answer, name) for answer in kept] for name in REVIEWS.schema.names})
