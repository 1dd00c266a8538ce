"""Journal of reviewers' answers: one small immutable file per answer."""

import re
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pyarrow as pa

from darklode.pipeline.base.artifacts import Store, key_of
from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.review_tables import REVIEWS

ANSWERS_FOLDER = "review/answers"
_READERS = 16  # files read at once: on S3 each is a request
_NAME = re.compile(r"/(\d{20})-[0-9a-f]{32}\.json")


@dataclass(frozen=True)
class ReviewAnswer:
    """An answer of a reviewer to a pair.

    Attributes:
        relevance: 0, or a grade from 1; None if skipped.
        judge_shown: the reviewer could see the judge's verdict.
        undone: retracts the reviewer's earlier answer to the pair; the other values are ignored.
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

    @property
    def pair(self) -> str:
        return pair_name(self.tenant, self.query_id, self.chunk_id)


class AnswerJournal:
    """A run's answers in chronological order; threads and processes may append concurrently.

    An answer appended after `read` is ordered after all answers read, even if the clock was set back.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = 0
        self._counting = threading.Lock()

    def append(self, answer: ReviewAnswer) -> None:
        """Store an answer durably and atomically."""
        with self._counting:
            self._last = max(time.time_ns(), self._last + 1)
            number = self._last
        record = asdict(answer) | {"answered_at": answer.answered_at.astimezone(UTC).isoformat()}
        name = f"{ANSWERS_FOLDER}/{number:020d}-{uuid4().hex}.json"
        self._store.write(name, dump_checksummed(record))

    def read(self) -> list[ReviewAnswer]:
        """All answers, including retracted ones.

        Raises:
            ArtifactError: a file is invalid.
        """
        names = sorted(name for name in self._store.sizes(ANSWERS_FOLDER) if name.endswith(".json"))
        numbers = [int(match[1]) for name in names if (match := _NAME.search(name))]
        with self._counting:
            self._last = max([self._last, *numbers])
        with ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(self._load, names))

    def _load(self, name: str) -> ReviewAnswer:
        try:
            content = load_checksummed(self._store.read(name) or b"")
            return ReviewAnswer(**content | {"answered_at": datetime.fromisoformat(content["answered_at"])})
        except (ValueError, TypeError, KeyError) as error:
            raise ArtifactError(f"{self._store.path(name)} is not a valid answer ({error}); move it away") from error


def current_answers(answers: Iterable[ReviewAnswer]) -> pa.Table:
    """Rows of `reviews` by key: each reviewer's last answer to each pair, except retracted ones."""
    last = {answer.key: answer for answer in answers}
    latest = [last[key] for key in sorted(last) if not last[key].undone]
    return REVIEWS.rows({name: [getattr(answer, name) for answer in latest] for name in REVIEWS.schema.names})


def pair_name(tenant: str, query_id: str, chunk_id: str) -> str:
    """Name of a pair in forms and sheets, where ids could contain unsafe characters."""
    return "p" + key_of(tenant, query_id, chunk_id)


def clean_rationale(text: str | None) -> str | None:
    """Normalize a rationale's whitespace and line ends; None if empty."""
    return (text or "").replace("\r\n", "\n").replace("\r", "\n").strip() or None
