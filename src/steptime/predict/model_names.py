"""Names of the models that are predicted beside each other, which tell each from the others."""

from collections.abc import Iterable, Sequence
from dataclasses import fields

from steptime.fitting.observation import GroupKey
from steptime.predict.predict import Prediction
from steptime.predict.uncertainty import error_growth

_INPUT = ("input_shape", "classes")
_NAMED = {"framework", "strategy", "tuning", "settings", "workload", *_INPUT}
"""Of a key, what names have anyway."""


def workload_names(keys: Iterable[GroupKey]) -> dict[GroupKey, str]:
    """Return ``resnet50``; where its input or classes differ, ``resnet50 of 3x224x224 in 1000 classes``."""
    several = list(dict.fromkeys(keys))
    forms: dict[str, set[tuple[object, ...]]] = {}
    for key in several:
        forms.setdefault(key.workload, set()).add((key.input_shape, key.classes))
    return {key: key.workload + (_form(key) if len(forms[key.workload]) > 1 else "") for key in several}


def _form(key: GroupKey) -> str:
    return f" of {'x'.join(map(str, key.input_shape))} in {key.classes} classes"


def model_names(keys: Iterable[GroupKey]) -> dict[GroupKey, str]:
    """Return the name of each model, with what it differs by from others whose names would be the same."""
    workloads = workload_names(keys)
    names = {key: f"{key.name.removesuffix(key.workload)}{workload}" for key, workload in workloads.items()}
    alike: dict[str, list[GroupKey]] = {}
    for key, name in names.items():
        alike.setdefault(name, []).append(key)
    return {key: name + _difference(key, alike[name]) for key, name in names.items()}


def _difference(key: GroupKey, others: Sequence[GroupKey]) -> str:
    """Return `` (precision bf16)`` of what is not the same in all of ``others``; empty of one alone."""
    different = [
        f"{field.name.replace('_', ' ')} {_value(getattr(key, field.name))}"
        for field in fields(key)
        if field.name not in _NAMED and len({getattr(other, field.name) for other in others}) > 1
    ]
    return f" ({', '.join(different)})" if different else ""


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join("=".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in value) or "none"
    return "none" if value is None else str(value)


def unmeasured_workloads(predictions: Iterable[Prediction]) -> list[str]:
    """Return of each workload that no group of the profile ran what its predictions are computed from."""
    sources: dict[str, dict[str, None]] = {}
    known = [each for each in predictions if each.inputs is not None]
    names = workload_names(each.key for each in known)
    for each in known:
        source = each.inputs.group.key if each.inputs else each.key
        if (source.workload, source.input_shape) != (each.key.workload, each.key.input_shape):
            form = _form(source) if source.workload == each.key.workload else ""
            sources.setdefault(names[each.key], {})[source.workload + form] = None
    doubt = f"an error of {100 * error_growth().workload:.0f} %"
    return [
        f"{name} was not measured: its computing is scaled from that of {' or '.join(those)} by arithmetic, which adds "
        f"{doubt}; before a decision measure one worker of it."
        for name, those in sources.items()
    ]
