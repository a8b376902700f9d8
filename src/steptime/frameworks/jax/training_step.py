"""One training step in JAX as one compiled program, with the mean of all workers' gradients inside it.

The ablated step, each stage a program of its own.
"""

import jax
from jax import lax, numpy

from steptime.frameworks.jax.communication import packed_together
from steptime.frameworks.jax.mesh import AXIS
from steptime.frameworks.jax.optimizers import clipped, optimizer_of, slots_of
from steptime.worker.process_context import micro_batches
from steptime.worker.session import AblatedStep


def mean_of_all(gradients, pack_kb):
    """Return the means of ``{name: array}`` over all workers, within the step.

    Args:
        gradients: of this worker.
        pack_kb: arrays of up to so many KiB travel together.
    """
    names = list(gradients)
    small = [names[place] for place in packed_together([gradients[name].nbytes for name in names], pack_kb)]
    if not small:
        return lax.pmean(gradients, AXIS)
    alone = {name: array for name, array in gradients.items() if name not in small}
    pack = numpy.concatenate([gradients[name].ravel() for name in small])
    pack, means = lax.pmean((pack, alone), AXIS)
    start = 0
    for name in small:
        means[name] = pack[start : start + gradients[name].size].reshape(gradients[name].shape)
        start += gradients[name].size
    return means


class JaxStep(object):
    """The stages of a step as pure functions of ``(state, inputs, targets)``, which return ``(state, losses)``.

    The state is ``(variables, kept by the optimizer, statistics, number of the step, random keys)``. Losses are one
    per worker, as are statistics and keys: normalisation and dropout are each worker's own.
    """

    def __init__(self, network, job, mesh, placement):
        self._network = network
        self._settings = job["optimizer"]
        self._slot = slots_of(self._settings)[0]
        self._together = job["strategy"] == "allreduce"
        self._accumulation = micro_batches(job)
        self._pack_kb = job["options"].get("pack_kb", 0)
        self._donated = (0,) if job["options"]["donate"] else ()
        self._mesh = mesh
        self._placement = placement

    def train(self, state, inputs, targets, rate=None):
        """Run a whole step, with the learning rate ``rate`` or, where it is None, with the job's as a constant."""
        loss, statistics, gradients = self._gradients_in_parts(state, inputs, targets)
        if self._together:
            gradients = mean_of_all(gradients, self._pack_kb)
        return self._updated(state, statistics, gradients, rate), loss[None]

    def forward(self, state, inputs, targets):
        """Compute the loss, in training."""
        variables, kept, statistics, number, keys = state
        loss, statistics = self._network.loss(variables, statistics, inputs, targets, _key(state))
        return (variables, kept, statistics, number, keys), loss[None]

    def backward(self, state, inputs, targets):
        """Compute this worker's gradients, which are left in the place of what the optimizer keeps."""
        loss, statistics, gradients = self._gradients(state, inputs, targets)
        variables, kept, _, number, keys = state
        return (variables, dict(kept, **{self._slot: gradients}), statistics, number, keys), loss[None]

    def local(self, state, inputs, targets):
        """Run a step without the other workers."""
        loss, statistics, gradients = self._gradients(state, inputs, targets)
        return self._updated(state, statistics, gradients), loss[None]

    def communication(self, state, _inputs, _targets):
        """Average the arrays that are where ``backward`` leaves gradients as ``train`` averages gradients."""
        variables, kept, statistics, number, keys = state
        means = mean_of_all(kept[self._slot], self._pack_kb)
        return (variables, dict(kept, **{self._slot: means}), statistics, number, keys), numpy.zeros(1)

    def compiled(self, function, *, rated=False, **settings):
        """Return one of these functions compiled, with settings of ``jax.jit``.

        It takes the state's memory over unless the job wants none donated. With ``rated`` it takes the learning rate
        too, so that another one compiles nothing.
        """
        if self._together:
            alike, split = self._placement.alike, self._placement.split
            state = (alike, alike, split, alike, split)
            # Variables stay alike because gradients are; XLA cannot know this of every sum, so it is not asked to
            # check.
            specs = (state, split, split) + (alike,) * rated
            function = jax.shard_map(
                function, mesh=self._mesh, in_specs=specs, out_specs=(state, split), check_vma=False
            )
        return jax.jit(function, donate_argnums=self._donated, **settings)

    def _gradients(self, state, inputs, targets):
        variables, _, statistics, _, _ = state
        of_loss = jax.value_and_grad(self._network.loss, has_aux=True)
        (loss, statistics), gradients = of_loss(variables, statistics, inputs, targets, _key(state))
        return loss, statistics, gradients

    def _gradients_in_parts(self, state, inputs, targets):
        """Return what ``_gradients`` does: the means over equal parts of the batch, one computed after the other."""
        count = self._accumulation
        if count == 1:
            return self._gradients(state, inputs, targets)
        variables, kept, statistics, number, keys = state
        parts = [each.reshape((count, each.shape[0] // count) + each.shape[1:]) for each in (inputs, targets)]

        def add(carried, part):
            statistics, loss, total = carried
            place, own, wanted = part
            # Dropout draws for each part; numbers of steps stay below 2**31 / count.
            key_number = number * count + place
            found = self._gradients((variables, kept, statistics, key_number, keys), own, wanted)
            more, statistics, gradients = found
            return (statistics, loss + more / count, jax.tree.map(lambda a, b: a + b / count, total, gradients)), None

        nothing = jax.tree.map(numpy.zeros_like, variables)
        start = (statistics, numpy.float32(0.0), nothing)
        (statistics, loss, gradients), _ = lax.scan(add, start, (numpy.arange(count), *parts))
        return loss, statistics, gradients

    def _updated(self, state, statistics, gradients, rate=None):
        variables, kept, _, number, keys = state
        rate = self._settings["learning_rate"] if rate is None else rate
        update, gradients = optimizer_of(self._settings), clipped(self._settings, gradients)
        variables, kept = update(self._settings, rate, gradients, (variables, kept, number + 1))
        return variables, kept, statistics, number + 1, keys


def _key(state):
    """Return the random key of this step and this worker."""
    _, _, _, number, keys = state
    return jax.random.fold_in(jax.random.wrap_key_data(keys[0]), number)


def first_state(network, weights, job, context, placement):
    """Return the state before the first step."""
    variables = network.variables(weights)
    key = jax.random.key_data(jax.random.key(job["seed"] * 1009 + context.rank))  # each worker drops values of its own
    return (
        _each(placement.put_alike, variables),
        {slot: _each(placement.put_zeros, variables) for slot in slots_of(job["optimizer"])},
        _each(placement.put_split, network.statistics()),
        placement.put_alike(numpy.int32(0)),
        placement.put_split(key[None]),
    )


def _each(function, arrays):
    return {name: function(array) for name, array in arrays.items()}


class JaxAblation(AblatedStep):
    """Stages that are not waited for, as steps are not: the device is as busy in them as in training.

    All but the whole step are compiled when they first run. All gradients are results of the program that applies
    them to nothing, since XLA would not compute them otherwise.
    """

    def __init__(self, step, train, run, take, copies, *, several):  # noqa: PLR0913 - a session's parts
        """Take a session's parts.

        Args:
            step: a ``JaxStep``.
            train: the compiled whole step.
            run: runs a compiled function of the step on a batch.
            take: returns the next batch.
            copies: returns the ``Batches.copies`` of the session; None on a processor.
            several: whether there are other workers.
        """
        self._step = step
        self._train = train
        self._run = run
        self._take = take
        self._copies = copies
        self._several = several

    def stages(self):
        held = self._take()
        parts = ["forward", "backward"] + ["local", "communication"] * self._several
        # Parts of the state that a program does not read lend it their memory, too.
        programs = {name: self._step.compiled(getattr(self._step, name), keep_unused=True) for name in parts}
        programs["exchange" if self._several else "local"] = self._train
        stages = {name: self._on(program, held) for name, program in programs.items()}
        stages["input"] = self._take
        if self._copies is not None:
            copied = self._copies()
            stages["h2d"] = lambda: self._run(self._train, next(copied))
        return stages

    def _on(self, program, held):
        return lambda: self._run(program, held)
