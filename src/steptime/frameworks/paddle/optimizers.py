"""Paddle's own optimizers under the names of a study.

Its Adam and AdamW add epsilon to the root of the corrected second moment, as Kingma and Ba do; its AdamW takes decay
off the weights by the learning rate, as Loshchilov and Hutter do.
"""

import paddle

from steptime.worker.weights import is_decayed


def open_optimizer(parameters, settings, *, multi_tensor):
    """Return Paddle's optimizer over ``parameters`` with the job's ``optimizer`` settings.

    Args:
        parameters: of a layer.
        settings: of the job's ``optimizer``.
        multi_tensor: whether one call updates all parameters, where the optimizer has one.
    """
    rule, how = _OPTIMIZERS[settings["name"]](settings)
    if rule is not paddle.optimizer.AdamW:
        how["use_multi_tensor"] = multi_tensor
    if "clip_norm" in settings:
        how["grad_clip"] = paddle.nn.ClipGradByGlobalNorm(settings["clip_norm"])
    fixed = [each for each in parameters if not is_decayed(settings, len(each.shape))]
    if fixed and rule is paddle.optimizer.AdamW:
        names = {each.name for each in fixed}
        how["apply_decay_param_fun"] = lambda name: name not in names
    for each in fixed:
        each.regularizer = paddle.regularizer.L2Decay(0.0)  # instead of the optimizer's
    return rule(settings["learning_rate"], parameters=parameters, weight_decay=settings["weight_decay"], **how)


def _momentum(settings):
    return paddle.optimizer.Momentum, {"momentum": settings["momentum"]}


def _nesterov(settings):
    return paddle.optimizer.Momentum, {"momentum": settings["momentum"], "use_nesterov": True}


def _adam(settings):
    return paddle.optimizer.Adam, _moments(settings)


def _adamw(settings):
    return paddle.optimizer.AdamW, _moments(settings)


def _moments(settings):
    return {name: settings[name] for name in ("beta1", "beta2", "epsilon")}


_OPTIMIZERS = {"sgd": _momentum, "nesterov": _nesterov, "adam": _adam, "adamw": _adamw}
