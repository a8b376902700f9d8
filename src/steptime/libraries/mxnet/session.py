"""A session in MXNet, whoever updates its weights: a bound symbol and its batches.

MXNet reads its environment when this module is imported; ``startup.py`` sets it before.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import mxnet
import numpy

from steptime.libraries.mxnet.ablation import MXNetAblation, step_clock
from steptime.libraries.mxnet.loader import open_mxnet_batches
from steptime.libraries.mxnet.network import BoundWorkload
from steptime.libraries.mxnet.optimizers import clip, optimizer_state, set_optimizer_state
from steptime.libraries.mxnet.startup import BULK_VARIABLE, loss_scale
from steptime.worker.clock import StepClock
from steptime.worker.precision import PROBE, identity_kernel, probe_size
from steptime.worker.process_context import Job, ProcessContext, micro_batches
from steptime.worker.session import AblatedStep, Session
from steptime.worker.usage import compute_threads
from steptime.worker.weights import initial_weights

_STEPS_AHEAD = 4
_WEIGHT, _RUNNING = "weight/", "running/"
_SMALL_ARRAY = 10000
_ARRAYS_PER_UPDATE = 4


class MXNetSession(Session):
    """Forward, backward and update are all issued to MXNet's engine, which overlaps what it can."""

    def __init__(self, job: Job, context: ProcessContext, mx_device: Any, update: Callable[..., "OwnUpdate"]) -> None:
        """Build everything.

        Args:
            job: the job.
            context: of this worker.
            mx_device: MXNet's device.
            update: a function that returns, for the ``BoundWorkload``, what updates its weights: see ``OwnUpdate``.
        """
        self._mx_device = mx_device
        self._cuda = job["device"] == "cuda"
        self._batch = job["batch_per_worker"]
        self._bound = BoundWorkload(
            job["workload"],
            self._batch,
            mx_device,
            job["label_smoothing"],
            loss_scale(job),
            micro_batches(job),
        )
        self._bound.set_weights(initial_weights(job["workload"]["layers"], job["seed"]))
        self._batches = open_mxnet_batches(job, context, mx_device)
        self._update = update(self._bound)
        self._written = list(self._bound.weights.values())  # once these are written, a step is over
        self._steps = 0
        self._evaluation: Any = None
        self._evaluated: Any = None

    def step(self) -> None:
        # The engine runs behind Python. It must not fall behind without end, for every batch that waits takes
        # memory; nor be waited for in each step, because it would then be idle while the next step is issued.
        self._steps += 1
        if self._steps % _STEPS_AHEAD == 0:
            self._bound.losses.wait_to_read()
        self._bound.backpropagate(*next(self._batches))
        self._update.step()

    def set_learning_rate(self, rate: float) -> None:
        self._update.set_learning_rate(rate)

    def outputs(self, inputs: Any) -> Any:
        if self._evaluated != self._steps:
            self._evaluation = self._bound.evaluation(self._update.stored_weights())
            self._evaluated = self._steps
        return self._evaluation.outputs(inputs)

    def state(self) -> Optional[Dict[str, Any]]:
        found = self._update.state()
        if found is None:
            return None
        found.update({_WEIGHT + name: array.asnumpy() for name, array in self._bound.weights.items()})
        found.update({_RUNNING + name: array.asnumpy() for name, array in self._bound.running.items()})
        return found

    def set_state(self, arrays: Dict[str, Any]) -> None:
        self._update.set_state(arrays)
        for kind, own in ((_WEIGHT, self._bound.weights), (_RUNNING, self._bound.running)):
            for name, array in own.items():
                array[:] = arrays[kind + name]
        self._evaluated = None

    def ablate(self) -> Optional[AblatedStep]:
        ablation = MXNetAblation(self._bound, self._update, self._batches, _STEPS_AHEAD, cuda=self._cuda)
        self._written = ablation.written
        return ablation

    def batches_ahead(self) -> int:
        return self._batches.ahead

    def wait(self) -> None:
        mxnet.nd.waitall()

    def probe_precision(self) -> Dict[str, Tuple[float, Any]]:
        device = self._mx_device
        size = probe_size(device.device_type)
        one = mxnet.nd.array(numpy.eye(size.matrix), ctx=device)
        rows = mxnet.nd.full((size.matrix, size.matrix), PROBE, ctx=device)
        images = mxnet.nd.full((1, size.channels, size.image, size.image), PROBE, ctx=device)
        kernel = mxnet.nd.array(identity_kernel(size), ctx=device)
        shape = (size.kernel, size.kernel)
        products = {
            # Not nd.dot, which automatic mixed precision leaves in float32.
            "matrix products": mxnet.nd.FullyConnected(rows, one, num_hidden=size.matrix, no_bias=True),
            "convolutions": mxnet.nd.Convolution(images, kernel, kernel=shape, num_filter=size.channels, no_bias=True),
        }
        return {
            what: (float(product.reshape(-1)[0].asscalar()), numpy.dtype(product.dtype).name)
            for what, product in products.items()
        }

    def clock(self) -> StepClock:
        return step_clock(self._written)

    def loss(self) -> float:
        return float(self._bound.losses.asnumpy().mean())

    def loss_later(self) -> Callable[[], float]:
        losses = self._bound.losses.copy()  # in the engine, behind the step that writes them
        return lambda: float(losses.asnumpy().mean())

    def parameter_count(self) -> int:
        return self._bound.parameter_count()

    def output_shape(self) -> List[int]:
        return [self._batch] + list(self._bound.outputs.shape[1:])

    def get_weights(self) -> Optional[Dict[str, Any]]:
        return {name: array.asnumpy() for name, array in self._update.stored_weights().items()}

    def facts(self) -> Dict[str, Any]:
        facts = {
            "framework_version": mxnet.__version__,
            "device": str(self._mx_device),
            "threads": compute_threads(),
            "mkldnn": mxnet.runtime.Features().is_enabled("MKLDNN"),
            "bulk_nodes": int(mxnet.util.getenv(BULK_VARIABLE)),
        }
        facts.update(self._update.facts)
        return facts

    def staleness(self) -> Optional[Dict[int, int]]:
        return self._update.staleness()

    def close(self) -> None:
        self._batches.close()
        self._update.close()

    def abort(self) -> None:
        self._update.abandon()
        self._batches.close()


class OwnUpdate(object):
    """This process updates its own weights. What updates weights elsewhere has the same methods."""

    arriving: Sequence[Any] = ()
    """Arrays in which the results of an exchange come back, in the order of the layers; empty where there is none."""
    updates_here = True
    """Whether ``apply`` updates the weights; if not, those who take part in the exchange do."""

    def __init__(self, optimizer: Any, bound: Any, arrays_per_update: int) -> None:
        """Take an optimizer.

        Args:
            optimizer: of ``mxnet.optimizer``.
            bound: the ``BoundWorkload`` to update.
            arrays_per_update: how many arrays one call of the optimizer updates, where it can do several; 0 chooses
                by their mean size.
        """
        self._weights = bound.weights
        self._arrays = list(bound.weights.values())
        self._gradients = list(bound.gradients.values())
        if optimizer.aggregate_num:
            optimizer.aggregate_num = arrays_per_update or _group_size(self._arrays)
        self._optimizer = optimizer
        self._update = mxnet.optimizer.get_updater(optimizer)
        self.facts = {"updated_by": "worker", "arrays_per_update": max(1, optimizer.aggregate_num)}

    def step(self) -> None:
        """Start all that turns gradients into new weights."""
        self.apply()

    def apply(self) -> None:
        """Start the update of all weights with the gradients that are here."""
        clip(self._gradients, self._optimizer)
        # The updater rewrites the list of keys that it is given.
        self._update(list(range(len(self._arrays))), self._gradients, self._arrays)

    def set_learning_rate(self, rate: float) -> None:
        """Update with another rate from the next step on."""
        self._optimizer.set_learning_rate(rate)

    def staleness(self) -> Optional[Dict[int, int]]:
        """No other worker updates."""

    def stored_weights(self) -> Dict[str, Any]:
        """Return ``{name: NDArray}``."""
        return self._weights

    def state(self) -> Optional[Dict[str, Any]]:
        """Return the optimizer's state as ``{name: numpy array}``; None if it cannot be read."""
        return optimizer_state(self._update)

    def set_state(self, arrays: Dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        set_optimizer_state(self._update, self._arrays, arrays)

    def close(self) -> None:
        """Nothing is held."""

    def abandon(self) -> None:
        """Nothing is held."""


def _group_size(arrays: List[Any]) -> int:
    """Return the number of arrays for one call of the optimizer.

    Grouping saves calls, which counts where arrays are small, but the grouped kernel walks its arrays abreast and
    takes 1.7 times as long as one array after the other where they are large (ResNet-50 on one core).
    """
    mean = sum(array.size for array in arrays) / float(len(arrays))
    return _ARRAYS_PER_UPDATE if mean < _SMALL_ARRAY else 1
