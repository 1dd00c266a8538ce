"""What a judge is: pairs of a query and a chunk in, one reply for each out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.schemas.table import CHUNK_ID, QUERY_ID, TENANT
from darklode.schemas.tables import CHUNKS, VERDICTS

QUERY_BLOCK = 64
"""Queries judged together, and recorded together."""


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
"""What a judge is asked: pairs of one tenant, by query_id, then chunk_id.

At full depth they are all pairs of up to `QUERY_BLOCK` queries, at adaptive depth some pairs of any query.
"""

REPLIES = pa.schema([field for field in VERDICTS.schema if field.name not in {*VERDICTS.key}])
"""What a judge answers: row i speaks of pair i, in the fields and types of `verdicts`."""


def replies_of(values: Mapping[str, pa.Array | pa.ChunkedArray], n: int) -> pa.Table:
    """`n` rows of `REPLIES` from some of its columns; the others are null."""
    columns = [values.get(field.name, pa.nulls(n, field.type)) for field in REPLIES]
    return pa.Table.from_arrays(columns, schema=REPLIES)


def check_replies(judge_id: str, pairs: pa.Table, replies: pa.Table) -> None:
    """Hold a judge to the port.

    Raises:
        ValueError: they have other rows than `REPLIES` or than the pairs, or a null label comes without an error.
    """
    if replies.num_rows != pairs.num_rows or not replies.schema.equals(REPLIES):
        raise ValueError(f"{judge_id}: {replies.num_rows} replies to {pairs.num_rows} pairs, schema {replies.schema}")
    if has_silent_null(replies):
        raise ValueError(f"{judge_id}: a reply without a label must say why in `error`")


def has_silent_null(replies: pa.Table) -> bool:
    """Whether a null label comes without an error."""
    return bool(pc.any(pc.and_(pc.is_null(replies["relevant"]), pc.is_null(replies["error"]))).as_py())


class Live(Protocol):
    """How far a judge is that waits for something."""

    @property
    def n_answered(self) -> int:
        """Pairs with a reply so far, over all batches."""

    @property
    def note(self) -> str:
        """What else a person may want to know, in a line."""


class Judge(Protocol):
    """Decides whether chunks are relevant to queries.

    The same pair gets the same reply from the same `judge_id`, whichever pairs it comes with. `judge` is a coroutine
    so that a judge that waits for a server can keep many calls in flight: how many, how often it asks again and what
    it remembers are its own affair, and it returns when the whole batch is answered. A class that names it as its
    base has nothing to count and is not to be watched, unless it says otherwise.
    """

    @property
    def judge_id(self) -> str:
        """All that can change a verdict: model and revision, prompt version and hash, decoding settings."""
        ...

    @property
    def facts(self) -> Mapping[str, int]:
        """What it has counted so far, for the stage's record."""
        return {}

    @property
    def live(self) -> Live | None:
        """How far it is with a batch; None where there is nothing to watch."""
        return None

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair.

        Args:
            pairs: rows of `PAIRS`; a chunk may occur with several queries.

        Returns:
            Rows of `REPLIES`, as many as pairs and in their order. A reply that cannot be read is a row whose
            `relevant` is null and whose `error` says why: never 0, never left out.

        Raises:
            DarklodeError: the judge cannot go on at all; what the stage has finished by then stays on disk.
        """
        ...


class TrainableJudge(Judge):
    """A judge that labels of people make, or make better."""

    @abstractmethod
    def with_training(self, pairs: pa.Table, positive: NDArray[np.bool_]) -> Judge:
        """The judge that these labels make, and no others: whatever it learned before is forgotten.

        Args:
            pairs: rows of `PAIRS`.
            positive: people found the pair relevant, shape (n_pairs,).
        """


@dataclass(frozen=True)
class ReplyBatch:
    """Some replies, each said once and for good.

    Attributes:
        rows: rows of the pairs that were asked, shape (n_replies,).
        replies: rows of `REPLIES`, in the order of `rows`.
    """

    rows: NDArray[np.int64]
    replies: pa.Table


@dataclass(frozen=True)
class Earlier:
    """An earlier version of a judge.

    Attributes:
        judge_id: the id that its verdicts are kept under.
        alike: of rows of `PAIRS`, whether it was shown the same words, shape (n_pairs,).
    """

    judge_id: str
    alike: Callable[[pa.Table], NDArray[np.bool_]]


class StreamingJudge(Protocol):
    """Like a judge, but its replies can be kept one by one: a failure costs none of those that came before it."""

    @property
    def judge_id(self) -> str:
        """All that can change a verdict (see `Judge`); reading it may ask the server what it can do.

        Raises:
            DarklodeError: the server cannot be reached, or cannot judge.
        """
        ...

    @property
    def previous_version(self) -> Earlier | None:
        """Its earlier version, whose verdicts stand where it was shown the same; None: there is none."""
        return None

    @property
    def note(self) -> str:
        """What a person may want to know meanwhile, in a line."""
        return ""

    def recall_replies(self, replies: pa.Table) -> pa.Table:
        """Rows of `REPLIES` that an earlier version of this judge gave and the ledger kept, as they hold today."""
        return replies

    def stream(self, pairs: pa.Table) -> AsyncIterator[ReplyBatch]:
        """Replies in the order of their arrival, every pair exactly once.

        Closing the iterator gives up what is under way.

        Args:
            pairs: rows of `PAIRS`.

        Raises:
            DarklodeError: it cannot go on; every reply that had arrived was handed over before.
        """
        ...
