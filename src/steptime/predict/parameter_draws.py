"""Draws of the parameters of a configuration that is asked for: of its computing, its exchange and its links."""

from zlib import crc32

import numpy as np

from steptime.catalog.workloads.costs import Costs
from steptime.catalog.workloads.table import build_workload
from steptime.fitting.importance_sampling import OVERLAP, overlap_prior
from steptime.fitting.posterior import DRAWS, Array, draw_factors
from steptime.fitting.profile import LinkEstimate, ProfileGroup
from steptime.fitting.step_model import INNER, OUTER, costs_of
from steptime.model.compute import transfer, work_of
from steptime.model.policies import has_own_policy
from steptime.predict.targets import Target
from steptime.predict.topology import Topology

_LINK_SEED = 11


def parameters_of(
    target: Target, group: ProfileGroup, topology: Topology, cost: Costs, rng: np.random.Generator
) -> tuple[dict[str, Array], float]:
    """Return draws of all parameters, and by how much computing was scaled to another workload.

    What is not known of a link is drawn by its kind: two steps over the same one share it, and so do links of one
    kind that differ in their rate; two over others do not.
    """
    found = {name: parameter.array for name, parameter in group.parameters.items()}
    source = target.exchange
    overlap, overlap_spread = overlap_prior(own_policy=has_own_policy(target.key.framework, target.key.strategy))
    unknown = 1 / (1 + np.exp(-overlap - overlap_spread * rng.standard_normal(DRAWS)))
    found[OVERLAP] = unknown if source is None else source.parameters[OVERLAP].array
    used = OUTER if topology.deployment.crosses else INNER
    kinds = [(used, topology.spread, topology.factors, topology.link)]
    if topology.inner is not None:
        kinds.append((INNER, topology.inner_spread, topology.inner_factors, topology.inner))
    for names, spreads, holds, link in kinds:
        drawn = np.random.default_rng([_LINK_SEED, _number_of(link)])
        for name, spread in zip(names, spreads, strict=True):
            known = source.parameters.get(name) if source is not None and holds else None
            found[name] = (np.ones(DRAWS) if known is None else known.array) * draw_factors(spread, drawn)
    if target.key.loader != group.key.loader:
        found["input_per_sample_s"] = np.zeros(DRAWS)
    if target.transferred is not None:
        found = _on_other_device(found, target, rng)
    if target.key.workload == group.key.workload and target.key.input_shape == group.key.input_shape:
        return found, 1.0
    return _scaled_to_workload(found, group, cost)


def _number_of(link: LinkEstimate | None) -> int:
    """Return a number that two links share where the same is assumed of them: of one kind and source, or of one card.

    Latency, and the share of a stated rate that is reached, are drawn once for all rates: a faster link never takes
    longer by the luck of its draws.
    """
    if link is None:
        return 0
    card = link.rate if link.source == "believed" and link.nominal_rate is None else None
    return crc32(repr((link.between_hosts, link.medium, link.source, card)).encode())


def _on_other_device(found: dict[str, Array], target: Target, rng: np.random.Generator) -> dict[str, Array]:
    """Transfer computing to another device by the data sheets of both, with the uncertainty of such a factor."""
    here, there = target.transferred or (None, None)
    if here is None or there is None:
        return found
    key = target.key
    layers = work_of(build_workload(key.workload, key.input_shape, key.classes)).layers
    moved = transfer(
        [layer.forward_flops + layer.backward_flops for layer in layers],
        [3.0 * layer.traffic for layer in layers],  # there once, and back with two gradients
        here,
        there,
        key.precision,
    )
    doubt = np.log(moved.high / moved.low) / (2 * 1.645)
    factor = moved.value * draw_factors(doubt, rng)
    passes = [f"{name}_{part}" for name in ("forward", "backward") for part in ("fixed_s", "per_sample_s")]
    return found | {name: found[name] * factor for name in (*passes, "update_s")}


def _scaled_to_workload(found: dict[str, Array], group: ProfileGroup, cost: Costs) -> tuple[dict[str, Array], float]:
    """Scale computing to another workload: passes by arithmetic, what is fixed by layers, the update by weights."""
    known = costs_of(group.key.workload, group.key.input_shape, group.key.classes)
    layers = len(cost.layers) / len(known.layers)
    scaled = dict(found)
    for name, ratio in (
        ("forward", cost.forward_flops / known.forward_flops),
        ("backward", cost.backward_flops / known.backward_flops),
    ):
        scaled[f"{name}_fixed_s"] = found[f"{name}_fixed_s"] * layers
        scaled[f"{name}_per_sample_s"] = found[f"{name}_per_sample_s"] * ratio
    scaled["update_s"] = found["update_s"] * (cost.parameters / known.parameters)
    return scaled, max(cost.forward_flops / known.forward_flops, known.forward_flops / cost.forward_flops, 1.0 + 1e-9)
