"""Searches of a log whose lists variants of an experiment gave."""

from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 3, 1, 8, tzinfo=UTC)


def search(
    number: int, variants: list[str | None], clicked: set[int], session: str | None = None, tenant: str = "a"
) -> list[dict[str, Any]]:
    """One search whose documents at places 1, 2, … are of these variants."""
    return [
        {
            "tenant": tenant, "event_id": f"{number}-{place}", "search_id": f"s{number}", "session_id": session,
            "timestamp": START + timedelta(minutes=number), "query_id": "q", "query": "q", "doc_id": f"d{place}",
            "position": place, "clicked": place in clicked, "dwell_seconds": None, "variant": variant,
        }
        for place, variant in enumerate(variants, 1)
    ]  # fmt: skip
