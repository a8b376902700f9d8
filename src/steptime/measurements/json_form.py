"""The base of all objects that reports print as JSON."""

from pydantic import BaseModel, ConfigDict


class JsonForm(BaseModel):
    """An object whose keys are a contract: it cannot be changed, and a key that it does not have is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
