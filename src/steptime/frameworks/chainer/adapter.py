"""Training in Chainer, alone or with ChainerMN over MPI."""

from typing import Any

import numpy

from steptime.worker.clock import EventClock, HostClock
from steptime.worker.framework import Framework, require_fp32, require_own_device
from steptime.worker.imperative import ImperativeSession
from steptime.worker.precision import PROBE, identity_kernel, probe_size
from steptime.worker.process_context import micro_batches
from steptime.worker.usage import compute_threads
from steptime.worker.weights import initial_weights


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises ValueError for a precision or a communicator that Chainer does not have on the device, and RuntimeError
    when MPI does not see the workers that were started.
    """
    require_fp32(job, "Chainer", devices=("cpu", "cuda"))
    if job["device"] == "cuda":
        from steptime.libraries.nvidia.wheels import load_libraries

        load_libraries()  # before CuPy looks for them
    from steptime.frameworks.chainer.loader import start_helper_server

    start_helper_server(job["loader"])
    communicator = None
    if job["strategy"] == "allreduce":
        from steptime.frameworks.chainer.collectives import open_communicator, require_double_buffering

        communicator = open_communicator(job["options"]["communicator"], job["device"], context)
        if job["options"]["double_buffering"]:
            require_double_buffering(communicator)
    return ChainerSession(job, context, communicator)


class ChainerSession(ImperativeSession):
    """One worker's ``chain``, optimizer and loader, and the ``communicator`` (None for one worker)."""

    def __init__(self, job, context, communicator):
        import chainer

        from steptime.frameworks.chainer.loader import open_chainer_batches
        from steptime.frameworks.chainer.network import WorkloadChain
        from steptime.frameworks.chainer.optimizers import add_hooks, make_optimizer

        config = chainer.global_config
        options = job["options"]
        config.train = True
        config.type_check = False
        config.autotune = True
        config.use_ideep = options["ideep"]
        config.cudnn_fast_batch_normalization = options["fast_batch_norm"]
        self._chainer = chainer
        self.communicator = communicator
        self._cuda = job["device"] == "cuda"
        self._ideep = "" if self._cuda else _ideep_version(chainer)
        if self._cuda:
            require_own_device(context.local_rank, chainer.backends.cuda.cupy.cuda.runtime.getDeviceCount(), "CuPy")
            chainer.backends.cuda.set_max_workspace_size(options["workspace_mb"] * 2**20)
        self._device = chainer.get_device("@cupy:%d" % context.local_rank if self._cuda else "@numpy")
        self._device.use()
        self.chain = WorkloadChain(job["workload"], job["label_smoothing"])
        self.chain.set_weights(initial_weights(job["workload"]["layers"], job["seed"]))
        self.chain.to_device(self._device)
        self.accumulation = micro_batches(job)
        self._settings = job["optimizer"]
        self._rule = optimizer = make_optimizer(self._settings)
        self._double_buffering = communicator is not None and options["double_buffering"]
        self.exchanges = communicator is not None and not self._double_buffering
        if self._double_buffering:
            from steptime.frameworks.chainer.collectives import double_buffered

            optimizer = double_buffered(optimizer, communicator)
        self._optimizer = optimizer.setup(self.chain)
        add_hooks(self._optimizer, self._settings)
        self.batches = open_chainer_batches(job, context, self._device)
        self._loss: Any = None
        self._checked = communicator is None or self._cuda

    def forward(self, inputs, targets):
        loss = self.chain(inputs, targets)
        self._loss = loss.array
        return loss

    def backward(self, loss):
        self.chain.cleargrads()
        loss.backward()

    def gather(self, inputs, targets):
        size, mean = len(inputs) // self.accumulation, 0.0
        self.chain.cleargrads()
        for start in range(0, len(inputs), size):
            loss = self.forward(inputs[start : start + size], targets[start : start + size]) / self.accumulation
            loss.backward()  # adds to what is there
            mean += loss.array
        self._loss = mean

    def exchange(self):
        """Not by ChainerMN's optimizer wrapper: its first update would only broadcast the weights."""
        self.ready_gradients()
        self.communicator.multi_node_mean_grad(self.chain)

    def update(self):
        self._optimizer.update()

    def communication(self):
        return lambda: self.communicator.multi_node_mean_grad(self.chain)

    def ready_gradients(self):
        """Make the gradients such as ChainerMN can sum them where they lie, and look at them once."""
        if self._ideep:
            self.chain.make_numpy_gradients()
        if self._checked:
            return
        # ChainerMN reduces a copy of an array that is not contiguous, and then loses the sum without a word.
        for name, parameter in self.chain.namedparams():
            if not parameter.grad.flags.c_contiguous:
                raise RuntimeError("ChainerMN cannot reduce the gradient of %s: it is not contiguous" % name)
        self._checked = True

    def set_learning_rate(self, rate):
        from steptime.frameworks.chainer.optimizers import set_learning_rate

        set_learning_rate(self._rule, self._settings, rate)

    def outputs(self, inputs):
        chainer = self._chainer
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            outputs = self.chain.outputs(self._device.send(inputs))
        return numpy.array(chainer.backends.cuda.to_cpu(outputs.array))

    def state(self):
        """Return None with double buffering, whose gradients under way belong to no step that is over."""
        if self._double_buffering:
            return None
        serializer = self._chainer.serializers.DictionarySerializer()
        for name, part in self._saved():
            serializer[name].save(part)
        return serializer.target

    def set_state(self, arrays):
        reader = self._chainer.serializers.NpzDeserializer(arrays)
        for name, part in self._saved():
            reader[name].load(part)

    def _saved(self):
        return ("chain", self.chain), ("optimizer", self._rule)

    def ablate(self):
        from steptime.frameworks.chainer.ablation import ChainerAblation

        return ChainerAblation(self, self.exchanges and self.communicator.size > 1, self._cuda)

    def wait(self):
        if self._cuda:
            self._chainer.cuda.Stream.null.synchronize()

    def loss(self):
        return float(self._loss)

    def loss_later(self):
        loss = self._loss
        return lambda: float(loss)

    def parameter_count(self):
        return sum(parameter.size for parameter in self.chain.params())

    def output_shape(self):
        samples, *rest = self.chain.output_shape
        return [samples * self.accumulation] + rest

    def get_weights(self):
        return self.chain.get_weights()

    def facts(self):
        facts = {
            "framework_version": self._chainer.__version__,
            "numpy": numpy.__version__,
            "device": str(self._device),
            "threads": compute_threads(),
            "ideep": self._ideep or "not used",
            "type_check": bool(self._chainer.config.type_check),
        }
        if self._cuda:
            import cupy

            facts["workspace_mb"] = self._chainer.backends.cuda.get_max_workspace_size() // 2**20
            facts["fast_batch_norm"] = bool(self._chainer.config.cudnn_fast_batch_normalization)

            facts["cupy"] = cupy.__version__
            facts["nccl"] = cupy.cuda.nccl.get_version() if cupy.cuda.nccl.available else None
            facts["device_name"] = cupy.cuda.runtime.getDeviceProperties(self._device.device.id)["name"].decode()
        if self.communicator is not None:
            from steptime.frameworks.chainer.collectives import communicator_facts

            facts.update(communicator_facts(self.communicator))
        return facts

    def device_peak_bytes(self):
        """Return the memory that CuPy's pool has taken, which it keeps."""
        return self._device.xp.get_default_memory_pool().total_bytes() if self._cuda else None

    def probe_precision(self):
        xp, functions = self._device.xp, self._chainer.functions
        size = probe_size("cuda" if self._cuda else "cpu")
        one, images = (
            xp.eye(size.matrix, dtype="float32"),
            xp.full((1, size.channels, size.image, size.image), PROBE, "float32"),
        )
        products = {
            "matrix products": functions.linear(xp.full_like(one, PROBE), one),
            "convolutions": functions.convolution_2d(images, xp.asarray(identity_kernel(size))),
        }
        return {what: (float(product.array.ravel()[0]), product.dtype) for what, product in products.items()}

    def clock(self):
        if not self._cuda:
            return HostClock(self.wait)
        from cupy.cuda import Event, get_elapsed_time

        def new_event():
            event = Event()
            event.record()
            return event

        return EventClock(new_event, lambda first, last: get_elapsed_time(first, last) * 1e-3, self.wait)

    def close(self):
        self.batches.close()
        if self.communicator is not None:
            from steptime.frameworks.chainer.collectives import leave_mpi

            leave_mpi(self.communicator)

    def abort(self):
        """Leave MPI alone: finalising waits for the others; that this process ends is what makes mpiexec end them."""
        self.batches.close()


def _ideep_version(chainer):
    """Return the version of iDeep if Chainer computes with it; "" where it is not installed or not asked for."""
    intel64 = chainer.backends.intel64
    return intel64.ideep.__version__ if intel64.should_use_ideep(">=auto") else ""


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    from steptime.frameworks.chainer.collectives import ChainerMNBackEnd

    return ChainerMNBackEnd(job, context)


FRAMEWORK = Framework(open_session, open_back_end=open_back_end)
