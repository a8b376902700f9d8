"""The equivalence check refuses planted faults: a part of what ``benchmarks/equivalence/planted.py`` runs whole."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from preloading import PRELOADING

from steptime.catalog.manifest import load_manifests

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "equivalence"))
from configurations import Bench, configurations, small_workload

from planted import FAULTS, OF_LLAMA, OF_TRAINING, OF_TRANSFORMERS, planted_manifest, transformers, workload_of

TRAINING = tuple(OF_TRAINING)
"""Planted in each framework that has the settings, in the first strategy where they can exist."""
PRIMITIVES = ("gradient of one array not exchanged", "last layer frozen")
"""Planted in a framework's own code, of which each framework gets the first that can exist in it."""
OF_THE_EXCHANGE = "update before the exchange ends"
"""Planted by the strategy ``single`` in several workers, unless a framework's contract.py has a way of its own."""
OF_SERVERS = ("a worker sends zeros", "server applies a push twice", "async worker never pulls")


_ALL = {"reference", "pytorch", "tensorflow"}
"""Frameworks in which every fault of training settings is planted; of each other one has one by turns, and a
transformer's or a LLaMA's: the check is the same program for all of them."""
_DEAREST = "weight decay on biases"
"""Planted in the reference and PyTorch alone: before it is refused, dozens of runs of the reference are compared, which
are the same for every framework."""
_FEW = defaultdict(lambda: 1, reference=max(len(OF_TRANSFORMERS), len(OF_LLAMA)))
"""How many faults of each small transformer are planted in a framework; all frameworks are told of them alike."""


def _cases() -> Iterator[object]:
    """Yield a fault of primitives and one of the exchange for every framework, and those of asynchronous servers."""
    known = {fault.name: fault for fault in FAULTS}
    for turn, name in enumerate(load_manifests()):
        trials = list(configurations([name], [2], small_workload()))
        found = [(trial, known[fault]) for fault in PRIMITIVES for trial in trials if known[fault].exists(trial)]
        apart = [(trial, known[OF_THE_EXCHANGE]) for trial in trials if known[OF_THE_EXCHANGE].exists(trial)]
        found = (
            found[:1]
            + apart[:1]
            + [
                (trial, known[fault])
                for fault in OF_SERVERS
                for trial in trials
                if trial.strategy == "ps_async" and known[fault].exists(trial)
            ]
        )
        by_turns = [*TRAINING[turn % len(TRAINING) :], *TRAINING[: turn % len(TRAINING)]]
        settings = [fault for fault in by_turns if fault != _DEAREST or name in {"reference", "pytorch"}]
        for fault in settings if name in _ALL else settings[:1]:
            able = [trial for trial in trials if known[fault].exists(trial)]
            found += [(known[fault].trial(trial), known[fault]) for trial in able[:1]]
        few = (*OF_TRANSFORMERS[: _FEW[name]], *OF_LLAMA[: _FEW[name]])
        few = few if name in _ALL else few[turn % 2 :][:1]
        found += [
            (trial, known[fault]) for trial in transformers([name]) for fault in few if known[fault].exists(trial)
        ]
        for trial, fault in found:
            label = f"{name}-{trial.strategy}-{fault.name}"
            marks = [pytest.mark.framework(name)]
            if fault.name == _DEAREST:
                marks.append(pytest.mark.costly)
            yield pytest.param(name, trial, fault.name, marks=marks, id=label)


@pytest.fixture(scope="session")
def bench_of(tmp_path_factory):
    """A function that returns the bench of a framework, made once: what is right is computed once for all faults."""

    @cache
    def bench(name: str) -> Bench:
        return Bench([name], steps=3, scratch=tmp_path_factory.mktemp("bench"))

    return bench


@pytest.mark.usefixtures("trained_framework")
@pytest.mark.parametrize(("name", "trial", "fault"), list(_cases()))
def test_a_planted_fault_is_refused(name, trial, fault, bench_of, tmp_path):
    bench = bench_of(name)
    manifests = bench.executor.manifests
    planted = planted_manifest(manifests[name], fault, tmp_path)
    executor = replace(bench.executor, manifests={**manifests, name: planted}, preloading=PRELOADING)

    result = bench.check(trial, executor, workload_of(trial))

    assert not result.passed
    assert any(words in result.reason for words in ("differs from", "away", "instead of")), result.reason
