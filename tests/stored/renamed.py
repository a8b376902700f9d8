"""Today's names for what steptime 0.1.0 wrote before its names were settled, and what is not compared with it.

The archives in tests/data/stored hold five studies exactly as they were measured, and the report, the profile and the
predictions that were made of them then. Nothing in the archives is edited: whoever renames a key, or changes a result
on purpose, says so here. Profiles and predictions learn from mean steps since decision 18, and are compared with the
golden files alone.
"""

from collections.abc import Iterable
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
    "trials/band": "anomaly",
}
"""Keys of JSON objects, by the old name; `parent/key` names a key of the object under the key `parent` only."""

VALUES = {"gated": "not_equivalent"}
"""Whole values that are names, by the old one."""

KINDS = {"anatomy": "ablation", "gate": "equivalence"}
"""Kinds of records."""

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
    **dict.fromkeys(
        ("phases", "undecided", "more_launches", "overlap", "closure_error", "parts", "by_ablation_s", "difference_s"),
        "phases of nested stages are estimated together, none below 0; the golden files have them",
    ),
    "group": "the words of a heading name dataset and loader otherwise; the golden files have them",
    "cores_per_worker": "a worker's cores are a new key",
    "forked": "whether launches were forked is a new key",
    **dict.fromkeys(("stalls", "step_time_s/p90", "step_time_s/p99"), "quantiles and stalls are new keys"),
    "anomaly": "predictions are of mean steps (decision 18)",
    **dict.fromkeys(("gradient_error", "gradient_rounding", "equivalence/rounds"), "gradients and rounds are new keys"),
    **dict.fromkeys(("checked_at", "equivalence/kept"), "when a check was made, and by which run, are new keys"),
    **dict.fromkeys(("environment_variables", "varied_variables"), "variables of a launch are new keys"),
    "container": "the container of an interpreter is a new key",
    "environment_name": "the name of an environment of a study is a new key",
    "accumulation": "the micro-batches of a step are a new key",
    **dict.fromkeys(("pop", "pop_refused"), "POP efficiencies are new keys"),
    **dict.fromkeys(("loaders", "loader_processes"), "verdicts on loaders and helper processes are new keys"),
    "diagnosis": "findings, expected steps and scenarios are a new key",
    "work": "tokens, FLOP/s and MFU are a new key",
    "resources": "memory and energy are a new key",
    "scaling": "throughput over that of fewer workers is a new key",
    "bus_bytes_per_s": "bus bandwidth is a new key",
    "imbalance/blamed_worker": "a worker is blamed by an interval, and never after one launch (decision 17)",
    "flags": "a flag of noise gives the amount; the golden files have all of them",
    "set_aside": "lines that are not used are a new key",
    "sites": "the sets of hosts that launches ran on are a new key",
    **dict.fromkeys(("paper", "models", "prediction"), "papers, their models and a study's predictions are new keys"),
    **dict.fromkeys(("accuracy", "training", "equivalence/optimizer"), "trainings and their optimizers are new keys"),
}
"""Keys that are not compared, by today's name, written as in KEYS, each with the reason."""

_MARKS = "MXNet marks no forward pass: what ends with its backward pass is given to both"
_BOTH = "the interval of a phase whose accounts differ reaches to both"
EXCLUDED_OF: dict[str, dict[str, str]] = {
    "four-frameworks": {
        **dict.fromkeys(("native", "accounts"), _MARKS),
        **dict.fromkeys(("input_wait/low_s", "input_wait/high_s"), _BOTH),
    },
    "stale-updates": {
        **dict.fromkeys(("native", "accounts"), _MARKS),
        "gaps": "of mean steps another trial is the shortest, to which differences are (decision 18)",
    },
}
"""Keys that are not compared in the report of one study."""


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
    return VALUES.get(old, old) if isinstance(old, str) else old


def with_mean_steps(report: Any) -> Any:
    """Return a report in which throughput, efficiency, ratios and ranks are those of the mean steps that it has.

    Before decision 18 they were those of the medians, which had the mean beside them.
    """
    trials = {trial["id"]: trial for trial in report["trials"]}
    means = {name: trial["step_time_s"]["mean"] for name, trial in trials.items()}
    for name, trial in trials.items():
        trial["throughput_samples_per_s"]["value"] = trial["workers"] * trial["batch_per_worker"] / means[name]
        if trial["efficiency"]["value"] is not None:
            trial["efficiency"]["value"] = means[_baseline(trial, trials.values())["id"]] / means[name]
    places = []
    for group in dict.fromkeys(place["group"] for place in report["ranking"]):
        own = [place for place in report["ranking"] if place["group"] == group]
        own.sort(key=lambda place: means[place["trial"]])
        for rank, place in enumerate(own, 1):
            ratio = means[place["trial"]] / means[own[0]["trial"]]
            places.append({**place, "rank": rank, "ratio_to_best": {**place["ratio_to_best"], "value": ratio}})
    return {**report, "schema": 2, "ranking": places}


def _baseline(trial: Any, trials: Iterable[Any]) -> Any:
    """Return the trial that the efficiency of another one names as its baseline."""
    efficiency = trial["efficiency"]
    wanted = {"workers": efficiency["baseline_workers"], "strategy": efficiency["baseline_strategy"]}
    wanted |= {name: trial[name] for name in ("framework", "workload", "batch_per_worker")}
    (found,) = [each for each in trials if all(each[name] == value for name, value in wanted.items())]
    return found
