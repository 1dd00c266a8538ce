"""Paths as flow parameters: Prefect stores parameters, so its server rejects addresses with credentials."""

from typing import Annotated

from pydantic import Field

KEYLESS = "^(?![A-Za-z0-9]+://[^/]*[@:])"

Place = Annotated[str, Field(json_schema_extra={"pattern": KEYLESS})]
"""A path or an address without user name and password; the server rejects any other before storing it."""
