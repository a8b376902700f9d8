"""A worker's training state as numpy arrays: weights, running statistics, the optimizer's state, random numbers.

Of what is sharded, each worker keeps its own shard. Tensors keep their layout when they are read back, because fused
updates go through the memory of weights and optimizer state in one order.

Torch's own optimizers under the names of a study, and their learning rate.

Torch has no LARS and no LAMB. Its Adam and AdamW add epsilon to the root of the corrected second moment, as Kingma and
Ba do; its AdamW takes decay off the weights by the learning rate, as Loshchilov and Hutter do.
"""

import json
from typing import Any, Callable, Dict, List

import numpy
import torch

from steptime.worker.process_context import Job
from steptime.worker.weights import is_decayed


def module_state(module: Any) -> Dict[str, Any]:
    """Return ``{"module/NAME": array}`` of the parameters and buffers of a module."""
    return {"module/" + name: _array(tensor) for name, tensor in module.state_dict().items()}


def set_module_state(module: Any, arrays: Dict[str, Any]) -> None:
    """Copy what ``module_state`` returned into a module."""
    for name, tensor in module.state_dict().items():
        _copy(tensor, arrays["module/" + name])


def buffers_state(module: Any) -> Dict[str, Any]:
    """Return ``{"module/NAME": array}`` of the buffers of a module, which are its running statistics."""
    return {"module/" + name: _array(tensor) for name, tensor in module.named_buffers()}


def set_buffers_state(module: Any, arrays: Dict[str, Any]) -> None:
    """Copy what ``buffers_state`` returned into a module."""
    for name, tensor in module.named_buffers():
        _copy(tensor, arrays["module/" + name])


def optimizer_state(optimizer: Any) -> Dict[str, Any]:
    """Return ``{"optimizer/PLACE/NAME": array}``; PLACE is that of the parameter among all of the optimizer."""
    return {
        "optimizer/%d/%s" % (place, name): _array(value)
        for place, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def set_optimizer_state(optimizer: Any, arrays: Dict[str, Any]) -> None:
    """Give an optimizer the state that ``optimizer_state`` returned; its learning rate stays."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states: Dict[Any, Any] = {}
    for key, array in arrays.items():
        kind, _, rest = key.partition("/")
        if kind == "optimizer":
            place, name = rest.split("/")
            states.setdefault(int(place), {})[name] = _like(parameters[int(place)], array)
    optimizer.load_state_dict(dict(optimizer.state_dict(), state=states))


def random_state(device: Any) -> Dict[str, Any]:
    """Return ``{"random/DEVICE": array}`` of torch's generators, from which dropout draws."""
    states = {"random/cpu": torch.get_rng_state().numpy()}
    if device.type == "cuda":
        states["random/cuda"] = torch.cuda.get_rng_state(device).numpy()
    return states


def set_random_state(device: Any, arrays: Dict[str, Any]) -> None:
    """Set torch's generators to what ``random_state`` returned."""
    torch.set_rng_state(torch.from_numpy(arrays["random/cpu"]))
    if device.type == "cuda":
        torch.cuda.set_rng_state(torch.from_numpy(arrays["random/cuda"]), device)


def scaler_state(scaler: Any) -> Dict[str, Any]:
    """Return ``{"scaler/NAME": array}`` of torch's gradient scaler, whose state is numbers."""
    return {"scaler/" + name: numpy.array(value) for name, value in scaler.state_dict().items()}


def set_scaler_state(scaler: Any, arrays: Dict[str, Any]) -> None:
    """Give a gradient scaler the state that ``scaler_state`` returned."""
    kept = {key: array for key, array in arrays.items() if key.startswith("scaler/")}
    scaler.load_state_dict({key.partition("/")[2]: array.item() for key, array in kept.items()})


def nested_state(name: str, value: Any) -> Dict[str, Any]:
    """Return ``{"NAME/form": array, "NAME/0": array, …}`` of mappings and lists, in each other, of tensors and numbers.

    The form is JSON, in which the number of an array stands for a tensor. Nothing is pickled: a checkpoint from
    somebody else must run nothing.

    Raises TypeError for anything else.
    """
    arrays: List[Any] = []
    form = json.dumps(_form(value, arrays)).encode("ascii")
    found = {"%s/%d" % (name, number): array for number, array in enumerate(arrays)}
    found[name + "/form"] = numpy.frombuffer(form, dtype=numpy.uint8)
    return found


def nested_value(name: str, arrays: Dict[str, Any]) -> Any:
    """Return what ``nested_state`` was given."""
    form = json.loads(arrays[name + "/form"].tobytes().decode("ascii"))
    return _value(form, lambda number: arrays["%s/%d" % (name, number)])


_ITEMS = {"list": list, "tuple": tuple}


def _form(value: Any, arrays: List[Any]) -> Any:
    """Return the JSON of a value; append the arrays of its tensors to ``arrays``."""
    if torch.is_tensor(value):
        own = _own(value)
        arrays.append(_array(value))
        return {"tensor": len(arrays) - 1, "strides": list(own.stride()), "type": str(own.dtype).rpartition(".")[2]}
    if isinstance(value, dict):
        return {"mapping": [[_form(key, arrays), _form(item, arrays)] for key, item in value.items()]}
    for kind, items in _ITEMS.items():
        if isinstance(value, items):
            return {kind: [_form(item, arrays) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"plain": value}
    raise TypeError("a checkpoint holds tensors, numbers and text, and no %s" % type(value).__name__)


def _value(form: Any, array: Callable[[int], Any]) -> Any:
    if "tensor" in form:
        values = array(form["tensor"])
        tensor = torch.empty_strided(values.shape, form["strides"], dtype=getattr(torch, form["type"]))
        _copy(tensor, values)
        return tensor
    if "mapping" in form:
        return {_value(key, array): _value(item, array) for key, item in form["mapping"]}
    for kind, items in _ITEMS.items():
        if kind in form:
            return items(_value(item, array) for item in form[kind])
    return form["plain"]


def _array(value: Any) -> Any:
    """Return a tensor of this worker, or a number, as an array that shares no memory with it."""
    if not torch.is_tensor(value):
        return numpy.array(value)
    own = _own(value).detach().cpu()
    if own.dtype == torch.bfloat16:  # of which numpy knows nothing
        own = own.view(torch.int16)
    return numpy.array(own.numpy())


def _copy(tensor: Any, array: Any) -> None:
    own = _own(tensor).detach()
    values = torch.from_numpy(array)
    own.copy_(values.view(torch.bfloat16) if own.dtype == torch.bfloat16 else values)


def _like(parameter: Any, array: Any) -> Any:
    """Return ``array`` as a tensor laid out and sharded as ``parameter``, or as it is where it has another shape."""
    if array.shape != tuple(_own(parameter).shape):
        return torch.from_numpy(array)
    values = torch.empty_like(parameter)
    _copy(values, array)
    return values


def _own(tensor: Any) -> Any:
    """Return this worker's part of a sharded tensor, and another tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def open_optimizer(parameters: Any, settings: Dict[str, Any], update: str) -> Any:
    """Return torch's optimizer over ``parameters`` with the job's ``optimizer`` settings.

    Args:
        parameters: tensors.
        settings: of the job's ``optimizer``.
        update: ``default`` (torch chooses), ``foreach`` (one call for all parameters per operation) or ``fused`` (one
            call for the whole update).
    """
    how = {} if update == "default" else {update: True}
    groups = _decaying(parameters, settings)
    return _OPTIMIZERS[settings["name"]](
        groups, settings, lr=settings["learning_rate"], weight_decay=settings["weight_decay"], **how
    )


def _decaying(parameters: Any, settings: Dict[str, Any]) -> Any:
    """Return the parameters, in two groups where some of them do not decay."""
    parameters = list(parameters)
    fixed = [each for each in parameters if not is_decayed(settings, each.dim())]
    if not fixed:
        return parameters
    decaying = [each for each in parameters if is_decayed(settings, each.dim())]
    groups = [{"params": fixed, "weight_decay": 0.0}]
    return ([{"params": decaying}] if decaying else []) + groups


def clip(parameters: Any, settings: Dict[str, Any]) -> None:
    """Shorten the gradients of ``parameters`` together to the job's ``clip_norm``, if there is one."""
    if "clip_norm" in settings:
        torch.nn.utils.clip_grad_norm_(parameters, settings["clip_norm"])


def _momentum(parameters: Any, settings: Dict[str, Any], **how: Any) -> Any:
    return torch.optim.SGD(parameters, momentum=settings["momentum"], **how)


def _nesterov(parameters: Any, settings: Dict[str, Any], **how: Any) -> Any:
    momentum = settings["momentum"]
    return torch.optim.SGD(parameters, momentum=momentum, nesterov=momentum > 0, **how)  # torch refuses it without any


def _adam(parameters: Any, settings: Dict[str, Any], **how: Any) -> Any:
    return torch.optim.Adam(parameters, **dict(_moments(settings), **how))


def _adamw(parameters: Any, settings: Dict[str, Any], **how: Any) -> Any:
    return torch.optim.AdamW(parameters, **dict(_moments(settings), **how))


def _moments(settings: Dict[str, Any]) -> Dict[str, Any]:
    return {"betas": (settings["beta1"], settings["beta2"]), "eps": settings["epsilon"]}


_OPTIMIZERS = {"sgd": _momentum, "nesterov": _nesterov, "adam": _adam, "adamw": _adamw}
_LINEAR = ("sgd", "nesterov")


def is_linear(settings: Dict[str, Any]) -> bool:
    """Whether the update is linear in the gradients and the decay, so that the rate can divide instead of them."""
    return settings["name"] in _LINEAR


def set_rate(optimizer: Any, rate: float) -> None:
    """Have ``optimizer`` update with the learning rate ``rate`` from its next update on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def update_option(job: Job) -> str:
    """Return how the job's optimizer works: its option ``update``.

    Under fp16 ``default`` is ``fused``: with others, torch's loss scaling asks the device in every step whether a
    gradient is infinite, and waits for the answer.
    """
    wanted = job["options"].get("update", "default")
    return "fused" if wanted == "default" and job["precision"] == "fp16" else wanted


def update_of(optimizer: Any) -> str:
    """Return how an optimizer of torch updates, as read back from it: ``fused``, ``foreach`` or ``default``."""
    settings = optimizer.param_groups[0]
    return next((name for name in ("fused", "foreach") if settings.get(name)), "default")
