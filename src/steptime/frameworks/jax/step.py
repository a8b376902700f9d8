"""One training step as one compiled program."""

import jax
from jax import numpy

from steptime.frameworks.jax.averaging import mean_of_all


def compiled_step(network, job, mesh, placement):
    """Return the function ``(state, inputs, targets) -> (state, losses)``, which takes the state's memory over.

    The state is ``(variables, velocities, statistics, number of the step, random keys)``. Losses are one per worker,
    as are statistics and keys: normalisation and dropout are each worker's own.
    """
    optimizer = job["optimizer"]
    momentum, rate, decay = (optimizer[name] for name in ("momentum", "learning_rate", "weight_decay"))
    together = job["strategy"] == "allreduce"
    pack_kb = job["options"].get("pack_kb", 0)

    def train(state, inputs, targets):
        variables, velocities, statistics, number, keys = state
        key = jax.random.fold_in(jax.random.wrap_key_data(keys[0]), number)
        of_loss = jax.value_and_grad(network.loss, has_aux=True)
        (loss, statistics), gradients = of_loss(variables, statistics, inputs, targets, key)
        if together:
            gradients = mean_of_all(gradients, pack_kb)
        if decay:
            gradients = jax.tree.map(lambda gradient, value: gradient + decay * value, gradients, variables)
        velocities = jax.tree.map(lambda velocity, gradient: momentum * velocity + gradient, velocities, gradients)
        variables = jax.tree.map(lambda value, velocity: value - rate * velocity, variables, velocities)
        return (variables, velocities, statistics, number + 1, keys), loss[None]

    if together:
        alike, split = placement.alike, placement.split
        state = (alike, alike, split, alike, split)
        # Variables stay alike because gradients are; XLA cannot know this of every sum, so it is not asked to check.
        train = jax.shard_map(
            train, mesh=mesh, in_specs=(state, split, split), out_specs=(state, split), check_vma=False
        )
    return jax.jit(train, donate_argnums=0)


def first_state(network, weights, job, place, placement):
    """Return the state before the first step."""
    variables = network.variables(weights)
    key = jax.random.key_data(jax.random.key(job["seed"] * 1009 + place.rank))  # each worker drops values of its own
    return (
        _each(placement.put_alike, variables),
        _each(lambda values: placement.put_alike(numpy.zeros_like(values)), variables),
        _each(placement.put_split, network.statistics()),
        placement.put_alike(numpy.int32(0)),
        placement.put_split(key[None]),
    )


def _each(function, arrays):
    return {name: function(array) for name, array in arrays.items()}
