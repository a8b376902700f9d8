"""What slows computing is read off workers beside the same processes: a parameter server computes too."""

from dataclasses import replace

import numpy as np
import pytest
from world import KEY, TRUTH, World, a_deployment, a_profile

ALONE, WITH_SERVER = 1.05, 1.4
"""True factors on computing of two workers, without and with a server."""
SERVED = replace(KEY, strategy="ps_sync")


def seen(key, workers, factor, *, breakdown=True):
    world = World(truth={**TRUTH, "contention_factor": factor}, breakdown=breakdown, noise=0.01)
    deployment = a_deployment(workers, 32, servers=1 if key.strategy == "ps_sync" else 0)
    return world.observe(key, deployment, np.random.default_rng(1))


SINGLE = seen(replace(KEY, strategy="single"), 1, ALONE)


def factor_of(strategy, observations):
    (group,) = [each for each in a_profile(observations).groups if each.key.strategy == strategy]
    return group.parameters["contention_factor"]


def test_each_strategy_has_the_factor_of_its_own_workers():
    both = [SINGLE, seen(KEY, 2, ALONE), seen(SERVED, 2, WITH_SERVER)]
    assert factor_of("allreduce", both).value == pytest.approx(ALONE, rel=0.03)
    assert factor_of("ps_sync", both).value == pytest.approx(WITH_SERVER, rel=0.03)


def test_a_strategy_that_was_not_taken_apart_has_the_factor_of_one_with_as_many_servers():
    fsdp = replace(KEY, strategy="fsdp")
    kept = [SINGLE, seen(KEY, 2, ALONE), seen(SERVED, 2, WITH_SERVER), seen(fsdp, 2, ALONE, breakdown=False)]
    assert factor_of("fsdp", kept).value == pytest.approx(ALONE, rel=0.03)


def test_a_strategy_that_has_other_company_alone_to_learn_from_keeps_the_prior():
    kept = [SINGLE, seen(KEY, 2, ALONE, breakdown=False), seen(SERVED, 2, WITH_SERVER)]
    assert factor_of("allreduce", kept).how == "prior"


def test_other_company_helps_where_nothing_else_was_taken_apart():
    """Passes are known from it then, though not by how much the own workers are slowed."""
    single = replace(SINGLE, launch_phases=())
    kept = [single, seen(KEY, 2, ALONE, breakdown=False), seen(SERVED, 2, WITH_SERVER)]
    (group,) = [each for each in a_profile(kept).groups if each.key.strategy == "allreduce"]
    assert group.parameters["forward_per_sample_s"].how == "measured"
