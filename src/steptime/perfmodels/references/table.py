"""The reference models by name; the first three are the nulls that a model has to beat."""

from collections.abc import Mapping

from steptime.perfmodels.references.amdahl import amdahl
from steptime.perfmodels.references.curve_model import CurveModel
from steptime.perfmodels.references.generic import generic
from steptime.perfmodels.references.last import last
from steptime.perfmodels.references.linear import linear
from steptime.perfmodels.references.log2 import log2
from steptime.perfmodels.references.pmnf import pmnf
from steptime.perfmodels.references.usl import usl

NULLS: Mapping[str, CurveModel] = {"linear": linear, "last": last, "log2": log2}

REFERENCES: Mapping[str, CurveModel] = {**NULLS, "amdahl": amdahl, "usl": usl, "pmnf": pmnf, "generic": generic}
