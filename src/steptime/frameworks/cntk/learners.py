"""CNTK's learners: how one worker updates its weights, and how several come to the same ones."""

import math
import os
import tempfile

import numpy


def local_learner(cntk, parameters, settings):
    """Return the learner of one worker, by the job's ``optimizer``.

    The gradient is the mean over all samples of a step.

    Raises ValueError for an optimizer that CNTK does not have.
    """
    if settings["name"] not in _LEARNERS:
        raise ValueError("CNTK has no optimizer %r, only %s" % (settings["name"], ", ".join(sorted(_LEARNERS))))
    decay = {"l2_regularization_weight": settings["weight_decay"]}
    return _LEARNERS[settings["name"]](cntk, parameters, settings, decay)


def set_learning_rate(cntk, learner, rate):
    """Let ``learner``, perhaps a distributed one, update with another rate from now on."""
    learner.reset_learning_rate(_rate(cntk, rate))


def _rate(cntk, rate):
    return cntk.learning_parameter_schedule(rate, minibatch_size=cntk.learners.IGNORE)


def _momentum(cntk, momentum):
    return cntk.momentum_schedule(momentum, minibatch_size=cntk.learners.IGNORE)


def _sgd(cntk, parameters, settings, decay):
    rate = _rate(cntk, settings["learning_rate"])
    if not settings["momentum"]:
        return cntk.sgd(parameters, rate, **decay)
    # CNTK's default multiplies the gradient by 1 - momentum.
    return cntk.momentum_sgd(parameters, rate, _momentum(cntk, settings["momentum"]), unit_gain=False, **decay)


def _nesterov(cntk, parameters, settings, decay):
    rate, momentum = _rate(cntk, settings["learning_rate"]), _momentum(cntk, settings["momentum"])
    return cntk.nesterov(parameters, rate, momentum, unit_gain=False, **decay)


def _adam(cntk, parameters, settings, decay):
    return cntk.adam(
        parameters,
        _rate(cntk, settings["learning_rate"]),
        _momentum(cntk, settings["beta1"]),
        unit_gain=True,  # the factor 1 - beta1
        variance_momentum=_momentum(cntk, settings["beta2"]),
        epsilon=settings["epsilon"],
        # Said to the learner too: with that of the schedules alone CNTK divides the rate by the number of samples and
        # leaves their gradients summed, which is the same for SGD and nothing for Adam.
        minibatch_size=cntk.learners.IGNORE,
        **decay,
    )


_LEARNERS = {"sgd": _sgd, "nesterov": _nesterov, "adam": _adam}


def learner_state(learner):
    """Return the state of ``learner`` in CNTK's own form, as an array of bytes."""
    handle, path = tempfile.mkstemp(suffix=".learner")  # CNTK writes and reads files only
    os.close(handle)
    try:
        learner.create_checkpoint().save(path)
        return numpy.fromfile(path, dtype=numpy.uint8)
    finally:
        os.unlink(path)


def set_learner_state(cntk, learner, state):
    """Give ``learner``, one of the same kind, what ``learner_state`` returned."""
    handle, path = tempfile.mkstemp(suffix=".learner")
    os.close(handle)
    try:
        state.tofile(path)
        learner.restore_from_checkpoint(cntk.cntk_py.Dictionary.load(path))
    finally:
        os.unlink(path)


def distributed_learner(cntk, learner, job, context):
    """Return ``learner`` made distributed in the way of the job's strategy.

    Raises RuntimeError when MPI sees other workers than the launcher started.
    """
    communicator = cntk.distributed.Communicator
    context.require_rank("MPI", communicator.rank(), communicator.num_workers())
    return _BY_STRATEGY[job["strategy"]](cntk.distributed, learner, job["options"])


def _allreduce(distributed, learner, _):
    return distributed.data_parallel_distributed_learner(learner)


def _onebit(distributed, learner, options):
    return distributed.data_parallel_distributed_learner(learner, num_quantization_bits=options["bits"])


def _block_momentum(distributed, learner, options):
    size, momentum = options["block_size"], options["block_momentum"]
    # CNTK asks for the time after which a block's update has faded to 1/e, and chooses it by the workers if not told.
    constant = -size / math.log(momentum) if 0.0 < momentum < 1.0 else None if momentum < 0.0 else 0.0
    return distributed.block_momentum_distributed_learner(
        learner,
        size,
        block_momentum_as_time_constant=constant,
        use_nestrov_momentum=options["nesterov"],
        reset_sgd_momentum_after_aggregation=options["reset_momentum"],
        block_learning_rate=options["block_learning_rate"],
    )


_BY_STRATEGY = {"allreduce": _allreduce, "onebit": _onebit, "block_momentum": _block_momentum}
