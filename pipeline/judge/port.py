"""The interface of judges: pairs of a query and a chunk in, one reply per pair out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.schemas.label_tables import VERDICTS
from darklode.schemas.table import CHUNK_ID, QUERY_ID, TENANT
from darklode.schemas.tables import CHUNKS

QUERY_BLOCK = 64
"""Queries judged and recorded together."""


def _text(name: str, description: str) -> pa.Field:
    return pa.field(name, pa.string(), nullable=False, metadata={"description": description})


PAIRS = pa.schema(
    [
        TENANT,
        QUERY_ID,
        _text("query", "the query's text"),
        CHUNK_ID,
        CHUNKS.schema.field("title"),
        CHUNKS.schema.field("heading"),
        CHUNKS.schema.field("text"),
        _text("query_hash", "SHA-256 of the query's text, 32 hex digits"),
        _text("chunk_hash", "`content_hash` of the chunk: with judge_id and query_hash it names a verdict"),
    ]
)
"""Input of a judge: pairs of one tenant, by query_id, then chunk_id.

In full judging, all pairs of up to `QUERY_BLOCK` queries; in adaptive judging, pairs of any queries.
"""

REPLIES = pa.schema([field for field in VERDICTS.schema if field.name not in {*VERDICTS.key}])
"""Output of a judge: row i is the reply to pair i, in fields and types of `verdicts`."""


def replies_of(values: Mapping[str, pa.Array | pa.ChunkedArray], n: int) -> pa.Table:
    """`n` rows of `REPLIES` from some of its columns; the others are null."""
    columns = [values.get(field.name, pa.nulls(n, field.type)) for field in REPLIES]
    return pa.Table.from_arrays(columns, schema=REPLIES)


def check_replies(judge_id: str, pairs: pa.Table, replies: pa.Table) -> None:
    """Check a judge's replies against the contract.

    Raises:
        ValueError: rows differ from `REPLIES` or from the pairs, or a null label has no error.
    """
    if replies.num_rows != pairs.num_rows or not replies.schema.equals(REPLIES):
        raise ValueError(f"{judge_id}: {replies.num_rows} replies to {pairs.num_rows} pairs, schema {replies.schema}")
    if has_silent_null(replies):
        raise ValueError(f"{judge_id}: a reply without a label must say why in `error`")


def has_silent_null(replies: pa.Table) -> bool:
    """Whether a null label has no error."""
    return bool(pc.any(pc.and_(pc.is_null(replies["relevant"]), pc.is_null(replies["error"]))).as_py())


class Live(Protocol):
    """Progress of a judge that waits for a server."""

    @property
    def n_answered(self) -> int:
        """Pairs with a reply so far, over all batches."""

    @property
    def note(self) -> str:
        """Further status in one line."""


class Judge(Protocol):
    """Decides whether chunks are relevant to queries.

    The same pair gets the same reply from the same `judge_id`, whichever batch it is in. `judge` is a coroutine, so
    that a judge that waits for a server can keep many calls in flight; concurrency, retries and caching are its own
    concern, and it returns when the whole batch is answered. Subclasses inherit empty facts and no live progress.
    """

    @property
    def judge_id(self) -> str:
        """Everything that can change a verdict: model and revision, prompt version and hash, decoding settings."""
        ...

    @property
    def answering_ids(self) -> tuple[str, ...]:
        """Ids of the judges that may give its verdicts: its own, unless it is a cascade."""
        return (self.judge_id,)

    @property
    def facts(self) -> Mapping[str, int]:
        """Counters for the stage's record."""
        return {}

    @property
    def live(self) -> Live | None:
        """Progress within a batch; None if there is nothing to report."""
        return None

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair.

        Args:
            pairs: rows of `PAIRS`; a chunk may occur with several queries.

        Returns:
            Rows of `REPLIES` in the order of the pairs. An unreadable reply has a null `relevant` and an `error`; it is
            never 0 and never left out.

        Raises:
            DarklodeError: the judge cannot continue; units finished before stay on disk.
        """
        ...

    async def route(self, pairs: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
        """Replies as of `judge`, and for each the index in `answering_ids` of its judge, shape (n_pairs,)."""
        return await self.judge(pairs), np.zeros(pairs.num_rows, np.int64)


class JudgeWrapper(Judge):
    """A judge that changes the replies of another; counters and progress are those of the other.

    Args:
        judge: the judge whose replies are changed.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    @property
    @abstractmethod
    def suffix(self) -> str:
        """Appended to the other judge's ids: everything that can change a reply."""

    @abstractmethod
    def change_replies(self, replies: pa.Table) -> pa.Table:
        """The replies with the change; rows of `REPLIES`."""

    @property
    def judge_id(self) -> str:
        return f"{self._judge.judge_id}{self.suffix}"

    @property
    def answering_ids(self) -> tuple[str, ...]:
        return tuple(f"{judge_id}{self.suffix}" for judge_id in self._judge.answering_ids)

    async def judge(self, pairs: pa.Table) -> pa.Table:
        return self.change_replies(await self._judge.judge(pairs))

    async def route(self, pairs: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
        replies, source = await self._judge.route(pairs)
        return self.change_replies(replies), source

    @property
    def facts(self) -> Mapping[str, int]:
        return self._judge.facts

    @property
    def live(self) -> Live | None:
        return self._judge.live


class TrainableJudge(Judge):
    """A judge that is trained, or improved, by human labels."""

    @abstractmethod
    def with_training(
        self, pairs: pa.Table, positive: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
    ) -> Judge:
        """A judge trained on these labels only: earlier training is discarded.

        Args:
            pairs: rows of `PAIRS`.
            positive: labelled relevant by people, shape (n_pairs,).
            weight: number of labels that each counts as, above 0, shape (n_pairs,); None: 1.
        """


@dataclass(frozen=True)
class ReplyBatch:
    """Some final replies.

    Attributes:
        rows: indices of their pairs, shape (n_replies,).
        replies: rows of `REPLIES`, in the order of `rows`.
    """

    rows: NDArray[np.int64]
    replies: pa.Table


@dataclass(frozen=True)
class Earlier:
    """An earlier version of a judge.

    Attributes:
        judge_id: key of its verdicts in the ledger.
        is_unchanged: for rows of `PAIRS`, whether its prompt was the same, shape (n_pairs,).
    """

    judge_id: str
    is_unchanged: Callable[[pa.Table], NDArray[np.bool_]]


class StreamingJudge(Protocol):
    """A judge whose replies arrive, and are stored, one by one: a failure loses none of the earlier ones."""

    @property
    def judge_id(self) -> str:
        """Everything that can change a verdict; reading it may query the server's capabilities.

        Raises:
            DarklodeError: the server is not reachable, or cannot judge.
        """
        ...

    @property
    def previous_version(self) -> Earlier | None:
        """Its earlier version, whose verdicts are valid for pairs with the same prompt; None if there is none."""
        return None

    @property
    def note(self) -> str:
        """Current status in one line."""
        return ""

    def recall_replies(self, replies: pa.Table) -> pa.Table:
        """Re-interpret replies that an earlier version gave and the ledger kept."""
        return replies

    def stream(self, pairs: pa.Table) -> AsyncIterator[ReplyBatch]:
        """Replies in order of arrival, exactly one per pair.

        Closing the iterator cancels pending calls.

        Args:
            pairs: rows of `PAIRS`.

        Raises:
            DarklodeError: it cannot continue; replies that had arrived were yielded before.
        """
        ...
