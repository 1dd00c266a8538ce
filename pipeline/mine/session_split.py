"""Assignment of sessions, or of users with all of their sessions, to the training or the validation split.

Queries repeat, so sessions linked by common queries are nearly all one component: sessions, not components, are drawn.
A query belongs to the split of the session that searched it first, and only evidence of sessions of that split counts
for it. So no session supports pairs of both splits, and a later day never moves an earlier query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from darklode.pipeline.mine.tiers import N_HASH_VALUES

NO_SESSION_SPLIT_SQL = "CAST(NULL AS VARCHAR)"
"""SQL of the split of a row if sessions are not assigned."""


@dataclass(frozen=True)
class SessionSplit:
    """How sessions are assigned to splits.

    Attributes:
        unit: `session`; or `user`, whose sessions without a user id are assigned like users.
        validation_share: share of the sessions, or users, assigned to validation.
        seed: seed of the random assignment.
    """

    unit: str
    validation_share: float
    seed: int

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that decides the split of a session, for fingerprints."""
        return {"unit": self.unit, "validation_share": self.validation_share, "seed": self.seed}

    @property
    def id_sql(self) -> str:
        """SQL of what is drawn, from the columns user_id and session_id; null: the row has neither id."""
        return "session_id" if self.unit == "session" else "coalesce(user_id, session_id)"

    def split_sql(self, unit_id: str) -> str:
        """SQL of the split: train or validation, null without an id.

        Args:
            unit_id: SQL of the id, see `id_sql`; the rows also have the column tenant.
        """
        draw = f"md5_number_lower(concat_ws(chr(0), '{self.seed}', '{self.unit}', tenant, {unit_id})) / {N_HASH_VALUES}"
        return (
            f"CASE WHEN {unit_id} IS NULL THEN NULL WHEN {draw} < {self.validation_share!r} THEN 'validation' "
            "ELSE 'train' END"
        )


def session_split(group_by: Sequence[str], validation_share: float, seed: int) -> SessionSplit | None:
    """The assignment of sessions for the setting `split.group_by`; None if it names neither session nor user."""
    unit = next((unit for unit in ("user", "session") if unit in group_by), None)
    return None if unit is None else SessionSplit(unit, validation_share, seed)
