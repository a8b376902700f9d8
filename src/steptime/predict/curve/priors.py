"""What to believe of a source's curves: what was learned from the published curves of all other sources."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from steptime.predict.curve.curve import PredictedPoint, ScalingCurve
from steptime.predict.curve.parameters import NormalPrior, Priors
from steptime.predict.curve.posterior import predict
from steptime.predict.curve.scores import Asked

ALL_SOURCES = ""
"""The name of what was learned from all sources, for curves of a source that is none of them."""


def priors_for(source: str) -> Priors:
    """Return the beliefs that a curve of ``source`` may be predicted with: never any learned from that source."""
    known = _learned()
    return known.get(source, known[ALL_SOURCES])


def predict_curve(curve: ScalingCurve, asked: Asked) -> list[PredictedPoint]:
    """Return predictions from a curve's fit points with what may be believed of its source."""
    return predict(curve, asked, priors_for(curve.setup.source))


def learned_sources() -> list[str]:
    """Return the names of the sources that the shipped beliefs were learned from."""
    return sorted(name for name in _learned() if name != ALL_SOURCES)


def to_json(learned: Mapping[str, Priors], note: str) -> str:
    """Return the text of ``priors.json``."""
    without = {
        name: {parameter: [round(prior.mean, 4), round(prior.spread, 4)] for parameter, prior in priors.items()}
        for name, priors in learned.items()
    }
    return json.dumps({"note": note, "learned_without": without}, indent=1) + "\n"


@cache
def _learned() -> dict[str, Priors]:
    content: dict[str, Any] = json.loads(files("steptime.predict.curve").joinpath("priors.json").read_text("utf-8"))
    return {
        name: {parameter: NormalPrior(*pair) for parameter, pair in priors.items()}
        for name, priors in content["learned_without"].items()
    }
