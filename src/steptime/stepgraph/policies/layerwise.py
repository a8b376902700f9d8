"""One exchange per gradient, started as soon as it is there."""

from steptime.stepgraph.plan import Circumstances, Plan
from steptime.stepgraph.policies.flat import flat
from steptime.stepgraph.policies.packing import together
from steptime.stepgraph.work import Work


def layerwise(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return an all-reduce per gradient, in the order of the backward pass, one after the other."""
    return Plan(messages=tuple(together([tensor]) for tensor in work.backward_tensors()))


def caffe(work: Work, circumstances: Circumstances) -> Plan:
    """Return what the option ``reduction`` asks for: ``after`` the backward pass, or ``layerwise`` beside it."""
    rule = layerwise if circumstances.options.get("reduction", "after") == "layerwise" else flat
    return rule(work, circumstances)
