"""The step with stages taken away, for the anatomy of a step: each is a program of its own."""


def rungs_of(step, train, run, take, *, together):
    """Return the rungs of ``Session.rungs``; all but ``train`` are compiled when they first run.

    They are not waited for, as steps are not: the device is as busy in them as in training. All gradients are results
    of the program that applies them to nothing, else XLA would not compute them.

    Args:
        step: a ``Step``.
        train: the compiled whole step.
        run: runs a compiled function of the step on a batch.
        take: returns the next batch.
        together: whether there are other workers.
    """
    held = take()
    parts = ["forward", "backward"] + ["local", "communication"] * together
    # Parts of the state that a program does not read lend it their memory, too.
    programs = {name: step.compiled(getattr(step, name), keep_unused=True) for name in parts}
    programs["exchange" if together else "local"] = train
    rungs = {name: _on(run, program, held) for name, program in programs.items()}
    rungs["input"] = take
    return rungs


def _on(run, program, held):
    return lambda: run(program, held)
