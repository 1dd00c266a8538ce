"""Paths as flow parameters: Prefect stores parameters, so its server rejects addresses with credentials."""

from typing import Annotated

from pydantic import Field

WITHOUT_CREDENTIALS = (
    "^(?![Ss]3://[^/]*[@:])"
    r"(?![A-Za-z0-9+._-]+://[^/?#\[]*(\[[0-9A-Fa-f:.]+\])?:(?!\d{1,5}([/?#]|$)))"
    r"(?!.*://.*[?&]([Pp]assword|[Pp]asswd|[Pp]wd|[Tt]oken|[Ss]ecret|[Aa]pi_?[Kk]ey|[Kk]ey)=)"
)
"""No key in an `s3://` address; in others no colon except before a port, and no option that holds a secret."""

FlowPath = Annotated[str, Field(json_schema_extra={"pattern": WITHOUT_CREDENTIALS})]
"""A path or an address without user name and password; the server rejects any other before storing it."""
