"""What every section of the settings is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Settings are read once and never change; a key that is not known is an error, whose text shows no values."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


Share = Annotated[float, Field(ge=0, le=1)]
