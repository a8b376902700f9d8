"""A question, written as a YAML file, and the trials it asks for."""

from steptime.study.study import Study, schema
from steptime.study.trial import Trial

__all__ = ["Study", "Trial", "schema"]
