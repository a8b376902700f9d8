"""The ablated step in JAX, each stage a program of its own."""

from steptime.worker.session import AblatedStep


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
