"""Days that wait for a decision, and the one sentence that says so on the screen, in the card and in notifications."""

from dataclasses import dataclass

from darklode.pipeline.base.artifacts import Tables

DAY_NAME_SQL = """
    CASE WHEN count(*) OVER (PARTITION BY date) = 1 THEN CAST(date AS VARCHAR)
         ELSE concat(tenant, ':', CAST(date AS VARCHAR)) END
"""
"""Argument of --accept-day for a row of `log_days`: with the tenant, where other tenants share the date."""

HELD_DAYS_SQL = f"""
    SELECT CAST(date AS VARCHAR) AS date, tenant, rows, reasons, {DAY_NAME_SQL} AS name
    FROM log_days QUALIFY state = 'held' ORDER BY date, tenant
"""


@dataclass(frozen=True)
class HeldDay:
    """A tenant's day without a decision.

    Attributes:
        date: ISO date.
        tenant: the tenant.
        rows: rows of the log that are not used.
        reasons: what is unusual, most unusual first.
        name: argument of `--accept-day` and `--discard-day`.
    """

    date: str
    tenant: str
    rows: int
    reasons: list[str]
    name: str

    def sentence(self, accept: str, discard: str) -> str:
        """What is unusual, what each decision does, and how to decide.

        Args:
            accept: command that accepts the day.
            discard: command that discards it.
        """
        return (
            f"{self.name} is held back: {'; '.join(self.reasons)}; accept it to add its {self.rows:,} rows to the "
            f"training data (`{accept}`), or discard it to leave them out for good (`{discard}`)"
        )


def held_days(tables: Tables) -> list[HeldDay]:
    """The days held back without a decision, oldest first; none if the table `log_days` does not exist."""
    return [HeldDay(**row) for row in tables.sql(HELD_DAYS_SQL).to_pylist()] if "log_days" in tables else []
