"""What a judge that pays per pair is: it hands its replies over as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Answered:
    """Some replies, each said once and for good.

    Attributes:
        rows: rows of the pairs that were asked, shape (n_replies,).
        replies: rows of `REPLIES`, in the order of `rows`.
    """

    rows: NDArray[np.int64]
    replies: pa.Table


class Asker(Protocol):
    """Like a judge, but its replies can be kept one by one: a failure costs none of those that came before it."""

    @property
    def judge_id(self) -> str:
        """All that can change a verdict (see `Judge`); reading it may ask the server what it can do.

        Raises:
            DarklodeError: the server cannot be reached, or cannot judge.
        """
        ...

    def ask(self, pairs: pa.Table) -> AsyncIterator[Answered]:
        """Replies in the order of their arrival, every pair exactly once.

        Closing the iterator gives up what is under way.

        Args:
            pairs: rows of `PAIRS`.

        Raises:
            DarklodeError: it cannot go on; every reply that had arrived was handed over before.
        """
        ...
