"""Today's names for what steptime 0.1.0 wrote before its names were settled, and what is not compared with it.

The archives in tests/data/stored hold five studies exactly as they were measured, and the report, the profile and the
predictions that were made of them then. Nothing in the archives is edited: whoever renames a key, or changes a result
on purpose, says so here.
"""

from typing import Any

FILES = {"anatomy.jsonl": "ablation.jsonl", "gate.jsonl": "equivalence.jsonl"}
"""Files of a results folder."""

KEYS = {
    # study.json, study.yaml and records
    "gate": "equivalence",
    "anatomy": "breakdown",
    "rungs": "stages",
    # reports
    "ladder_s": "by_ablation_s",
    "goodput_loss_per_s": "loss_rate_per_s",
    # profiles
    "anatomy_launches": "ablation_launches",
    "measured/setting": "deployment",
    "link/start_s": "latency_s",
    "net/start_s": "latency_s",
    "groups/held": "held_out",
    "held/off": "anomalous_phase",
    "parameters/beside": "contention_factor",
    "parameters/start": "latency_factor",
    "parameters/rate": "bandwidth_factor",
    "parameters/hidden": "overlap_efficiency",
    # predictions
    "predictions/reach": "extrapolation",
    # reports beside profiles
    "trials/band": "anomaly",
}
"""Keys of JSON objects, by the old name; `parent/key` names a key of the object under the key `parent` only."""

VALUES = {
    "gated": "not_equivalent",
    "split": "apportioned",
    "believed": "prior",
}
"""Whole values that are names, by the old one."""

KINDS = {"anatomy": "ablation", "gate": "equivalence"}
"""Kinds of records."""

WORDING: dict[str, str] = {
    "how a step grows with the batch is only believed": "how a step grows with the batch comes from a prior",
    "so that what neighbours cost is only believed": "so that the contention factor comes from a prior",
}
"""Parts of sentences that were worded anew, by the old ones; applied in this order."""

_POOLED = "the spread of launches is pooled over trials (decision 11)"
_SEEN = "the range that launches gave is a new key"
_TIERS = "tiers and marks are new keys (decision 13)"
EXCLUDED: dict[str, str] = {
    **{
        f"{number}/{bound}": _POOLED
        for number in ("step_time_s", "throughput_samples_per_s", "efficiency", "ratio_to_best", "measured")
        for bound in ("low", "high")
    },
    **{
        f"{number}/{bound}": _SEEN
        for number in ("step_time_s", "throughput_samples_per_s", "efficiency", "ratio_to_best")
        for bound in ("least", "most")
    },
    "tied_with_best": _POOLED,
    "launches_to_settle": _POOLED,
    **dict.fromkeys(("tuning", "tiers", "tier_ranking", "tuned", "implementation"), _TIERS),
    "cores_per_worker": "a worker's cores are a new key",
    **dict.fromkeys(("gradient_error", "gradient_rounding", "equivalence/rounds"), "gradients and rounds are new keys"),
    **dict.fromkeys(("environment_variables", "varied_variables"), "variables of a launch are new keys"),
    "container": "the container of an interpreter is a new key",
    **dict.fromkeys(("loaders", "loader_processes"), "verdicts on loaders and helper processes are new keys"),
    "imbalance/blamed_worker": "a worker is blamed by an interval, and never after one launch (decision 17)",
    "set_aside": "lines that are not used are a new key",
    "sites": "the sets of hosts that launches ran on are a new key",
    **dict.fromkeys(("paper", "models", "prediction"), "papers, their models and a study's predictions are new keys"),
    **dict.fromkeys(("accuracy", "training", "equivalence/optimizer"), "trainings and their optimizers are new keys"),
    **dict.fromkeys(("interval_shares", "narrowed_by"), "what an interval is made of is a new key"),
    **dict.fromkeys(
        ("epoch_time_s/low", "epoch_time_s/high", "predicted/low_s", "predicted/high_s", "predicted_s/low"),
        "the model's error widens messages and waiting only",
    ),
    "predicted_s/high": "the model's error widens messages and waiting only",
}
"""Keys that are not compared, by today's name, written as in KEYS, each with the reason."""

EXCLUDED_OF_PROFILES: dict[str, str] = {
    "/schema": "a profile with links of two kinds has another number",
    **dict.fromkeys(("accumulation", "collectives", "nics_per_host", "traffic"), "what travels is new keys"),
    **dict.fromkeys(
        [f"{link}/{key}" for link in ("link", "net") for key in ("efficiency", "medium", "switch_share")],
        "what a link is made of is new keys",
    ),
    "measured/inner": "the links inside hosts are a new key",
    **dict.fromkeys(("effects", "cpu_share"), "what launches recorded of their machine is new keys (decision 14)"),
    "server_hosts": "hosts that only servers have are a new key",
}
"""Keys that are not compared in profiles."""

_OWN_COMPANY = (
    "what slows its workers comes from its own breakdown, not also from another strategy's, with servers or none"
)
EXCLUDED_OF: dict[str, dict[str, str]] = {}
"""Keys that are not compared in the report of one study."""


MODELLED_ANEW: dict[str, dict[str, str]] = {
    "stale-updates": {
        "mxnet ps_async": "no token bucket was crossed on one host, so that its workers share links evenly",
        "pytorch ps_async": "the same, and its own breakdown alone says what slows its workers",
        **dict.fromkeys(("mxnet ps_sync", "pytorch ps_sync"), _OWN_COMPANY),
    },
    "four-frameworks": dict.fromkeys(("pytorch allreduce", "pytorch ps_sync"), _OWN_COMPANY),
}
"""Frameworks and strategies whose model is another one in a study, by the study, with the reason (decisions 14, 15)."""


def without_strategies(kept: list[Any], study: str) -> list[Any]:
    """Return groups of a profile, or predictions, without those of strategies that are modelled anew."""
    keys = [each.get("key", each) for each in kept]
    anew = MODELLED_ANEW.get(study, {})
    return [each for each, key in zip(kept, keys, strict=True) if f"{key['framework']} {key['strategy']}" not in anew]


def rename(old: Any, parent: str = "") -> Any:
    """Return ``old``, a JSON value, with today's names."""
    if isinstance(old, dict):
        found = {}
        for key, value in old.items():
            name = KEYS.get(f"{parent}/{key}", KEYS.get(key, key))
            found[name] = KINDS.get(value, value) if key == "kind" else rename(value, key)
        return found
    if isinstance(old, list):
        return [rename(item, parent) for item in old]
    if isinstance(old, str):
        if old in VALUES:
            return VALUES[old]
        for before, after in WORDING.items():
            old = old.replace(before, after)
    return old


def rename_inner_factors(profile: Any) -> Any:
    """Return a profile in which factors on links are those of links inside a host, where all workers are in one."""
    for group in profile["groups"]:
        one_host = all(each["deployment"]["hosts"] == 1 for each in group["measured"])
        if one_host and group["key"]["strategy"] != "single":
            for name in ("latency_factor", "bandwidth_factor"):
                group["parameters"]["inner_" + name] = group["parameters"].pop(name)
    return profile
