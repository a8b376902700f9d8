"""The step of TensorFlow 2 with stages taken away, for the anatomy of a step."""

from steptime.worker.sessions.graph_building import clear_away


def rungs_of(tf, strategy, batches, *, together):
    """Return the rungs of ``Session.rungs``, each a compiled function of its own, which has run once.

    Results are what keeps a function from being pruned: all gradients leave the function that applies them to
    nothing.

    Args:
        tf: TensorFlow.
        strategy: as in ``TensorFlowSession``.
        batches: of this worker, of which one is taken and held.
        together: whether there are other workers.
    """
    training = strategy.training
    take = batches.taker()
    held = take()

    def compiled(function):
        return tf.function(strategy.wrap(function), autograph=False)

    def on_held(function):
        function = compiled(function)
        return lambda: function(*held)

    rungs = {name: on_held(getattr(training, name)) for name in ("forward", "backward", "local")}
    rungs["input"] = take
    if together:
        rungs["exchange"] = on_held(training.step)
        _, gradients = rungs["backward"]()
        # As results of operations they lie on a device, which collectives ask for; arguments lie nowhere.
        combine = compiled(lambda pieces: training.combine([tf.identity(piece) for piece in pieces]))
        rungs["communication"] = lambda: combine(gradients)
    for name in sorted(rungs):  # in the same order on all workers, since some wait for each other
        rungs[name]()
    clear_away()
    return rungs
