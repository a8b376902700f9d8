"""The step with stages taken away, for the anatomy of a step: parts of the graph that are run by themselves."""

import numpy


def rungs_of(session, strategy, take):
    """Return the rungs of ``Session.rungs``.

    Gradients that are exchanged without being computed are fed; they are zeros, because the servers apply them.

    Args:
        session: of this worker.
        strategy: has ``batches`` (``HeldBatches``); ``stages``, which are ``{rung: fetches}``; ``open_stages`` for
            what they need; and ``communication``, which is what exchanges and the gradients that it wants, or None.
        take: what runs a callable that takes a batch.
    """
    strategy.open_stages(session)

    def on_held(fetches):
        run = session.make_callable(fetches, feed_list=[strategy.batches.hold])
        return lambda: run(True)

    rungs = {name: on_held(fetches) for name, fetches in strategy.stages.items()}
    take_one = session.make_callable([tensor.op for tensor in strategy.batches.fresh])
    rungs["input"] = lambda: take(take_one)
    if strategy.communication:
        fetches, wanted = strategy.communication
        zeros = [numpy.zeros(each.shape.as_list(), numpy.float32) for each in wanted]
        exchange = session.make_callable(fetches, feed_list=wanted)
        rungs["communication"] = lambda: exchange(*zeros)
    return rungs
