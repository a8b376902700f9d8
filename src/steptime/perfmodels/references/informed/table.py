"""The reference models that are told of a job, by name."""

from collections.abc import Mapping

from steptime.perfmodels.references.informed.job import InformedModel
from steptime.perfmodels.references.informed.paleo import paleo
from steptime.perfmodels.references.informed.ssgd import ssgd
from steptime.perfmodels.references.informed.wait_free import wait_free

INFORMED: Mapping[str, InformedModel] = {"ssgd": ssgd, "ssgd_wait_free": wait_free, "paleo": paleo}
