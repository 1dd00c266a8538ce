"""Paths as flow parameters: Prefect stores parameters, so its server rejects addresses with credentials."""

from typing import Annotated

from pydantic import Field

WITHOUT_CREDENTIALS = "^(?![A-Za-z0-9]+://[^/]*[@:])"

FlowPath = Annotated[str, Field(json_schema_extra={"pattern": WITHOUT_CREDENTIALS})]
"""A path or an address without user name and password; the server rejects any other before storing it."""
