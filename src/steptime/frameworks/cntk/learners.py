"""CNTK's learners: how one worker updates its weights, and how several come to the same ones."""

import math


def local_learner(cntk, parameters, settings):
    """Return the learner of one worker: v = momentum * v + gradient, w = w - rate * v.

    The gradient is the mean over all samples of a step.
    """
    rate = cntk.learning_parameter_schedule(settings["learning_rate"], minibatch_size=cntk.learners.IGNORE)
    decay = {"l2_regularization_weight": settings["weight_decay"]}
    if not settings["momentum"]:
        return cntk.sgd(parameters, rate, **decay)
    momentum = cntk.momentum_schedule(settings["momentum"], minibatch_size=cntk.learners.IGNORE)
    # CNTK's default multiplies the gradient by 1 - momentum.
    return cntk.momentum_sgd(parameters, rate, momentum, unit_gain=False, **decay)


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
