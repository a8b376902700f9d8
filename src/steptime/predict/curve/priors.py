"""What to believe of a source's curves: what was learned from the published curves of all other sources."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from steptime.predict.curve.curve import Curve, Prediction
from steptime.predict.curve.parameters import Belief, Beliefs
from steptime.predict.curve.posterior import predict
from steptime.predict.curve.scores import Asked

ALL_SOURCES = ""
"""The name of what was learned from all sources, for curves of a source that is none of them."""


def beliefs_for(source: str) -> Beliefs:
    """Return the beliefs that a curve of ``source`` may be predicted with: never any learned from that source."""
    known = _learned()
    return known.get(source, known[ALL_SOURCES])


def predict_curve(curve: Curve, asked: Asked) -> list[Prediction]:
    """Return predictions from a curve's fit points with what may be believed of its source."""
    return predict(curve, asked, beliefs_for(curve.setup.source))


def learned_sources() -> list[str]:
    """Return the names of the sources that the shipped beliefs were learned from."""
    return sorted(name for name in _learned() if name != ALL_SOURCES)


def to_json(learned: Mapping[str, Beliefs], note: str) -> str:
    """Return the text of ``priors.json``."""
    without = {
        name: {parameter: [round(belief.mean, 4), round(belief.spread, 4)] for parameter, belief in beliefs.items()}
        for name, beliefs in learned.items()
    }
    return json.dumps({"note": note, "learned_without": without}, indent=1) + "\n"


@cache
def _learned() -> dict[str, Beliefs]:
    content: dict[str, Any] = json.loads(files("steptime.predict.curve").joinpath("priors.json").read_text("utf-8"))
    return {
        name: {parameter: Belief(*pair) for parameter, pair in beliefs.items()}
        for name, beliefs in content["learned_without"].items()
    }
