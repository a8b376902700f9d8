"""Chainer's optimizers as a job names them."""

import chainer

from steptime.worker.weights import is_decayed


def _sgd(settings):
    if not settings["momentum"]:
        return chainer.optimizers.SGD(lr=settings["learning_rate"])
    return chainer.optimizers.MomentumSGD(lr=settings["learning_rate"], momentum=settings["momentum"])


def _nesterov(settings):
    return chainer.optimizers.NesterovAG(lr=settings["learning_rate"], momentum=settings["momentum"])


def _adam(settings):
    return chainer.optimizers.Adam(alpha=settings["learning_rate"], **_moments(settings))


def _adamw(settings):
    # The schedule multiplier eta takes the place of the rate, since the decay is multiplied by eta alone.
    return chainer.optimizers.AdamW(
        alpha=1.0, eta=settings["learning_rate"], weight_decay_rate=settings["weight_decay"], **_moments(settings)
    )


def _moments(settings):
    return {"beta1": settings["beta1"], "beta2": settings["beta2"], "eps": settings["epsilon"]}


_OPTIMIZERS = {"sgd": (_sgd, "lr"), "nesterov": (_nesterov, "lr"), "adam": (_adam, "alpha"), "adamw": (_adamw, "eta")}
"""By name: what makes the optimizer, and which of its attributes is the learning rate."""
_DECOUPLED = ("adamw",)
"""Whose own rule takes the decay off the weights; the others get it added to their gradients."""


def make_optimizer(settings):
    """Return the optimizer of the job's ``optimizer``, without its hooks.

    Raises ValueError for one that Chainer does not have.
    """
    if settings["name"] not in _OPTIMIZERS:
        raise ValueError("Chainer has no optimizer %r, only %s" % (settings["name"], ", ".join(sorted(_OPTIMIZERS))))
    make, _ = _OPTIMIZERS[settings["name"]]
    return make(settings)


def set_learning_rate(optimizer, settings, rate):
    """Let ``optimizer``, made from ``settings``, update with another rate from now on."""
    _, attribute = _OPTIMIZERS[settings["name"]]
    setattr(optimizer, attribute, rate)


def add_hooks(optimizer, settings):
    """Have ``optimizer``, which has been set up, clip gradients and decay weights as its ``settings`` say."""
    if "clip_norm" in settings:
        optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(settings["clip_norm"]))
    fixed = [each for each in optimizer.target.params() if not is_decayed(settings, each.ndim)]
    decay = chainer.optimizer_hooks.WeightDecay(settings["weight_decay"])
    if settings["name"] in _DECOUPLED:
        for parameter in fixed:
            parameter.update_rule.hyperparam.weight_decay_rate = 0.0
    elif settings["weight_decay"] and not fixed:
        optimizer.add_hook(decay)
    elif settings["weight_decay"]:
        for parameter in optimizer.target.params():
            if is_decayed(settings, parameter.ndim):
                parameter.update_rule.add_hook(decay)
