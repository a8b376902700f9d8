"""Torch's own optimizers under the names of a study, and their learning rate.

Torch has no LARS and no LAMB. Its Adam and AdamW add epsilon to the root of the corrected second moment, as Kingma and
Ba do; its AdamW takes decay off the weights by the learning rate, as Loshchilov and Hutter do.
"""

from typing import Any, Dict

import torch

from steptime.worker.process_context import Job
from steptime.worker.weights import is_decayed


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
