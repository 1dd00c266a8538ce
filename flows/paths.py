"""Paths as parameters of flows: Prefect keeps parameters, so its server takes none that carries a key."""

from typing import Annotated

from pydantic import Field

KEYLESS = "^(?![A-Za-z0-9]+://[^/]*[@:])"

Place = Annotated[str, Field(json_schema_extra={"pattern": KEYLESS})]
"""A path or an address without a user name or password; the server refuses any other before it writes it down."""
