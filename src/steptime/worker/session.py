"""The interface between the worker and a framework: one worker's live training.

Requirements, which every session meets:

- the framework is imported inside ``Framework.open_session``, never when the adapter's module is imported;
- a session does what an expert of that framework would write by hand: graph mode, blocked layouts, prefetching;
- ``step`` trains for real: it takes the next batch, runs forward and backward, exchanges gradients and updates;
- nothing in a session measures time: the worker's loop does, in the same way for all frameworks;
- weights leave and enter a session as numpy arrays, float32, under the names and in the layout of the workload's JSON
  (convolution: out, in, height, width; linear: out, in), whatever the framework keeps inside.
"""

import abc

from steptime.worker.clock import HostClock


class Session(abc.ABC):
    """One worker's live training: a workload, an optimizer, a strategy and a loader, ready to step."""

    @abc.abstractmethod
    def step(self):
        """Run one whole training step; may return before the device or the engine has finished it."""

    @abc.abstractmethod
    def wait(self):
        """Return once everything that ``step`` started on this worker is finished."""

    @abc.abstractmethod
    def loss(self):
        """Return the loss of the last step on this worker's batch, as a float (may wait)."""

    @abc.abstractmethod
    def parameter_count(self):
        """Return the number of trainable values, counted in the framework's own objects, of the whole workload."""

    @abc.abstractmethod
    def output_shape(self):
        """Return the shape of the network's output for one batch, as a list, in the workload's layout."""

    @abc.abstractmethod
    def get_weights(self):
        """Return ``{name: array}`` of all trainable values, or None on a worker that does not hold them.

        Every worker calls it at the same point, since sharded strategies must gather.
        """

    def facts(self):
        """Return JSON-ready facts worth keeping with the record: versions, device name, threads, flags in force.

        Must hold at least ``framework_version``.
        """
        raise NotImplementedError

    def clock(self):
        """Return the clock that times this session's steps; sessions on a device return an event clock."""
        return HostClock(self.wait)

    def staleness(self):
        """Return ``{staleness: count}`` of this worker's updates since the last call; None where nothing can be stale.

        The staleness of an update is how many updates of other workers came between this worker's pull of the
        weights, from which the gradient was computed, and the application of that gradient. What is returned is
        forgotten. Called between the timed stretches, never in them.
        """
        return

    def stages(self):
        """Return ``{stage: function}``: this session's step with stages taken away, for the breakdown of a step.

        Each function runs one step and may return before it is finished, as ``step`` may. The ablation, where each
        stage does what the one before does, and one stage more:

        ``forward``
            The forward pass and the loss, as in training, on a batch that is held (on the device).
        ``backward``
            And the gradients, which are exchanged with nobody and applied to nothing.
        ``local``
            And the update of the weights with them, on this worker alone. Absent where servers update.
        ``exchange``
            And the exchange with the other workers: the whole step, still on the held batch. Absent for one worker.
        ``h2d``
            The same with the batch held in the host's memory and copied. Absent on a CPU.

        The top stage is ``step`` itself, which takes its batch from the loader. Beside the ablation:

        ``input``
            Taking the next batch from the loader, nothing else.
        ``communication``
            Exchanging gradients as ``exchange`` does (the same pieces), with nothing computed.

        A stage that the framework cannot take apart is left out, and its phases are null. All workers give the same
        stages. Weights may be anything afterwards; the session is closed. Called at most once, before the first step
        of an ablation run; what stages need and ``step`` does not (hooks, second graphs) is made here.
        """
        return {}

    marks = ()
    """Phases whose ends ``marked_step`` marks, in their order; empty where it does not exist."""

    def marked_step(self, mark):
        """Run one step as ``step`` does, and call ``mark(phase)`` as each phase of ``marks`` ends on this worker.

        The framework's own view of its step: explicit phases, hooks, its profiler. The phases are ``input`` (the
        batch is there), ``h2d``, ``forward``, ``backward`` (all gradients of this worker are computed: it has arrived
        where the exchange needs it), ``exchange`` (the last gradient came back) and ``update``. Where the framework
        tells only afterwards, ``mark(phase, at_s)`` takes the moment, in seconds of the host's monotonic clock.
        """
        raise NotImplementedError

    def transfers(self):
        """Return what was exchanged in marked steps since the last call, and forget it; None where nobody can see it.

        A list of ``[name, bytes, ready_s, done_s]``: one piece of gradients (a bucket, a key), when it could be sent
        and when its result was there, in seconds of the host's monotonic clock, in the order of ``ready_s``.
        """
        return

    def native(self):
        """Return what the framework's own timers say of the marked steps since the last call, and forget it.

        ``{source: {phases: seconds}}``, means over these steps, empty where nothing was told: ``source`` names the
        framework's log or timers, ``phases`` the phase that a duration covers, or several joined by `` + ``, such as
        ``comm_exposed + sync_wait``. Only what the framework itself took; it is held against the ablation.
        """
        return {}

    def batches_ahead(self):
        """Return how many batches the loader may hold ready: so many steps after a pause see no slow loader."""
        return 0

    def close(self):  # noqa: B027 - most sessions have nothing to release
        """Release processes and connections at the end; all workers call it."""

    def abort(self):
        """Release what this worker alone can release, after a failure of another method.

        Called instead of ``close``. It must not wait for other workers, which may be waiting for this one.
        """
        self.close()
