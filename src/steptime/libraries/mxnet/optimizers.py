"""MXNet's optimizers as a job names them, and their state as arrays.

MXNet's gradients are sums over samples, which its optimizers divide by the number of samples.
"""

import math
from typing import Any, Dict, List, Tuple

import mxnet
import numpy
from mxnet.ndarray.contrib import adamw_update  # a server's own import of mxnet never ends, so that it has no mxnet.nd

from steptime.libraries.mxnet.startup import loss_scale
from steptime.worker.process_context import Job
from steptime.worker.weights import is_decayed

_UPDATES = "optimizer/updates"
_STATE = "optimizer/%d/%d"


class DecayedNAG(mxnet.optimizer.NAG):
    """MXNet's Nesterov momentum with the decay in the gradient.

    The kernel of ``mxnet.optimizer.NAG`` writes the weight before it computes the momentum, which then decays by the
    new weight (seen in MXNet 1.9.1).
    """

    def __init__(self, decay: float, **settings: Any) -> None:
        """``decay`` times the weight is added to the mean gradient."""
        super(DecayedNAG, self).__init__(**settings)
        self._decay = decay

    def update_multi_precision(self, index: Any, weight: Any, gradient: Any, state: Any) -> None:
        gradient += (self._decay * self.wd_mult.get(index, 1.0) / self.rescale_grad) * weight
        super(DecayedNAG, self).update_multi_precision(index, weight, gradient, state)


class AdamW(mxnet.optimizer.Adam):
    """Adam with decoupled weight decay, by MXNet's operator ``contrib.adamw_update``, for which MXNet has no class.

    I. Loshchilov, F. Hutter, Decoupled weight decay regularization, ICLR 2019; the decay is multiplied by the rate.
    """

    def update(self, index: Any, weight: Any, gradient: Any, state: Any) -> None:
        self._update_count(index)
        updates = self._index_update_count[index]
        rate = self._get_lr(index)
        mean, variance = state
        adamw_update(
            weight,
            gradient,
            mean,
            variance,
            self.rescale_grad,
            out=weight,
            lr=rate * math.sqrt(1.0 - self.beta2**updates) / (1.0 - self.beta1**updates),
            eta=1.0,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            wd=rate * self._get_wd(index),
        )


def _sgd(settings: Any, common: Dict[str, Any]) -> Any:
    return mxnet.optimizer.SGD(momentum=settings["momentum"], **common)


def _nesterov(settings: Any, common: Dict[str, Any]) -> Any:
    decay = common.pop("wd")
    if decay:
        return DecayedNAG(decay, momentum=settings["momentum"], **common)
    return mxnet.optimizer.NAG(momentum=settings["momentum"], **common)


def _lars(settings: Any, common: Dict[str, Any]) -> Any:
    return mxnet.optimizer.LARS(
        momentum=settings["momentum"], eta=settings["trust_coefficient"], momentum_correction=False, **common
    )


def _adam(settings: Any, common: Dict[str, Any]) -> Any:
    return mxnet.optimizer.Adam(**dict(common, **_moments(settings)))


def _adamw(settings: Any, common: Dict[str, Any]) -> Any:
    return AdamW(**dict(common, **_moments(settings)))


def _lamb(settings: Any, common: Dict[str, Any]) -> Any:
    return mxnet.optimizer.LAMB(**dict(common, **_moments(settings)))


def _moments(settings: Any) -> Dict[str, Any]:
    return {name: settings[name] for name in ("beta1", "beta2", "epsilon")}


_OPTIMIZERS = {
    "sgd": _sgd,
    "nesterov": _nesterov,
    "adam": _adam,
    "adamw": _adamw,
    "lars": _lars,
    "lamb": _lamb,
}


def make_optimizer(job: Job, summed_workers: int) -> Any:
    """Return the job's optimizer, as ``mxnet.optimizer`` has it, where the gradients of so many workers are summed.

    Raises ValueError for an optimizer that MXNet does not have.
    """
    settings = job["optimizer"]
    if settings["name"] not in _OPTIMIZERS:
        raise ValueError("MXNet has no optimizer %r, only %s" % (settings["name"], ", ".join(sorted(_OPTIMIZERS))))
    common = {
        "learning_rate": settings["learning_rate"],
        "wd": settings["weight_decay"],
        "rescale_grad": 1.0 / (job["batch_per_worker"] * summed_workers * loss_scale(job)),
    }
    optimizer = _OPTIMIZERS[settings["name"]](settings, common)
    if settings["name"] == "lars":
        _tell_arrays_apart(optimizer, job["workload"])
    axes = [len(each["shape"]) for layer in job["workload"]["layers"] for each in layer["parameters"]]
    fixed = [index for index, count in enumerate(axes) if not is_decayed(settings, count)]
    if fixed:
        of_names: Dict[Any, float] = dict(optimizer.wd_mult)
        optimizer.set_wd_mult({**of_names, **dict.fromkeys(fixed, 0.0)})
    # Of the sum, which is what there is before the optimizer divides.
    optimizer.longest_gradient = settings["clip_norm"] / optimizer.rescale_grad if "clip_norm" in settings else None
    return optimizer


def clip(gradients: List[Any], optimizer: Any) -> None:
    """Have MXNet's engine shorten ``gradients`` together, where an optimizer of ``make_optimizer`` asks for it."""
    if optimizer.longest_gradient is not None:
        mxnet.gluon.utils.clip_global_norm(gradients, optimizer.longest_gradient, check_isfinite=False)


def _tell_arrays_apart(optimizer: Any, workload: Dict[str, Any]) -> None:
    """Let LARS scale the rate of those arrays alone that have several axes; it goes by the ends of names."""
    shapes = [parameter["shape"] for layer in workload["layers"] for parameter in layer["parameters"]]
    optimizer.idx2name = {
        index: "%d_%s" % (index, "weight" if len(shape) > 1 else "bias") for index, shape in enumerate(shapes)
    }
    optimizer.set_wd_mult(dict.fromkeys(optimizer.idx2name.values(), 1.0))  # it would not decay biases


def optimizer_state(updater: Any) -> Dict[str, Any]:
    """Return the state of an ``mxnet.optimizer.Updater`` as ``{name: numpy array}``.

    Every weight has had equally many updates.
    """
    found = {_UPDATES: numpy.array(updater.optimizer.num_update)}
    for index, state in updater.states.items():
        for place, array in enumerate(_arrays(state)):
            found[_STATE % (index, place)] = array.asnumpy()
    return found


def set_optimizer_state(updater: Any, weights: List[Any], arrays: Dict[str, Any]) -> None:
    """Give ``updater`` the state that ``optimizer_state`` returned.

    Args:
        updater: of the same optimizer, before its first update.
        weights: the NDArrays that it updates, by index.
        arrays: may hold more than the state.
    """
    optimizer = updater.optimizer
    optimizer.begin_num_update = optimizer.num_update = int(arrays[_UPDATES])
    for index, weight in enumerate(weights):
        state = optimizer.create_state_multi_precision(index, weight)
        for place, array in enumerate(_arrays(state)):
            array[:] = arrays[_STATE % (index, place)]
        updater.states[index], updater.states_synced[index] = state, True


def _arrays(state: Any) -> Tuple[Any, ...]:
    if state is None:
        return ()
    return state if isinstance(state, tuple) else (state,)
