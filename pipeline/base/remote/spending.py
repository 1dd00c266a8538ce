"""What was spent at remote models, kept over runs: a limit counts all of them."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.memory.rows import Kind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.remote.budget import Usage

SPENDING = Kind(
    "spending",
    "account",
    ("entry",),
    pa.schema(
        [
            pa.field("prompt_tokens", pa.int64(), nullable=False),
            pa.field("completion_tokens", pa.int64(), nullable=False),
            pa.field("cost", pa.float64(), nullable=False),
        ]
    ),
)
"""What was spent, by account (see `Endpoint.account`); an entry has a random name, and all of them add up."""


class SpendingBook:
    """What all runs have spent at one account, kept beside what they got for it.

    A run adds what it spent every few seconds, so that of a killed one no more than that is forgotten.

    Args:
        root: a folder or an s3:// prefix; null: the user's cache folder.
        account: whose.
    """

    def __init__(self, root: str | None, account: str) -> None:
        self._store, self._account = KeyedStore(root, SPENDING), account

    @property
    def place(self) -> str:
        """Where it is kept, for messages."""
        return self._store.parts.store.path(self._store.parts.folder(self._account))

    def add(self, usage: Usage, cost: float) -> None:
        """Enter what was spent.

        Raises:
            ArtifactError: it cannot be written.
        """
        row = {"entry": uuid.uuid4().hex, "prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        columns = [*SPENDING.key, *SPENDING.values.names]
        schema = pa.schema([SPENDING.schema.field(name) for name in columns])
        self._store.append(self._account, pa.Table.from_pylist([row | {"cost": cost}], schema))

    def total(self) -> tuple[Usage, float]:
        """Tokens and money of all entries.

        Raises:
            ArtifactError: they cannot be read.
        """
        self._store.tidy(self._account)
        rows = self._store.open(self._account).rows(SPENDING.values.names)
        prompt, completion, cost = (pc.sum(rows[name]).as_py() or 0 for name in SPENDING.values.names)
        return Usage(prompt, completion), float(cost)
