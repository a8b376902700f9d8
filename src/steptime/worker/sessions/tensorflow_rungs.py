"""The step of TensorFlow 2 with stages taken away, for the anatomy of a step."""

from steptime.worker.sessions.graph_building import clear_away


def rungs_of(tf, strategy, batches, *, together):
    """Return the rungs of ``Session.rungs``, each a compiled function of its own, whose graph is built.

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

    def on(function, *arguments):
        compiled = tf.function(strategy.wrap(function), autograph=False)
        compiled.get_concrete_function(*arguments)  # builds its graph, and runs nothing
        return lambda: compiled(*arguments)

    rungs = {name: on(getattr(training, name), *held) for name in ("forward", "backward", "local")}
    rungs["input"] = take
    if together:
        rungs["exchange"] = on(training.step, *held)
        _, gradients = rungs["backward"]()
        # As results of operations they lie on a device, which collectives ask for; arguments lie nowhere.
        combine = lambda pieces: training.combine([tf.identity(piece) for piece in pieces])  # noqa: E731 - wrapped
        rungs["communication"] = on(combine, gradients)
    clear_away()
    return rungs
