"""The precision of products: what each name means, and how what is really in force is found out.

``fp32``
    Products of float32 numbers, exact to 24 bits. TF32 is off in the framework and in NVIDIA's libraries.
``tf32``
    Arrays of float32, whose products a CUDA device computes from 11 bits of each factor.
``bf16``, ``fp16``
    The framework's automatic mixed precision: products from 8 or 11 bits, given in that type. What the framework
    leaves in float32 is computed as in ``fp32``.

Settings can be overruled by a library or a shell, so that no setting is believed: a session multiplies ``PROBE`` by
one, in the way its steps multiply, and the result tells.
"""

import os
from typing import Any, Dict, Tuple

from steptime.worker.process_context import Job

PROBE = 1.0 + 2.0**-12
"""A number of 13 bits: float32 keeps it, and the other formats round it to 1."""
SIZE = 64
"""Rows and columns of the matrices that are multiplied: enough for tensor cores to be used."""
_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def limit_libraries(job: Job) -> None:
    """Let NVIDIA's libraries use TF32 only where the job asks for it; to be called before the framework is imported.

    The variable is NVIDIA's own, and wins over what a framework asks of cuBLAS and cuDNN.
    """
    if job["device"] != "cuda":
        return
    if job["precision"] == "tf32":
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    else:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


def precision_of(value: float, element_type: Any) -> str:
    """Return the precision in which ``PROBE`` was multiplied by one.

    Args:
        value: the product, as a float.
        element_type: the name of its type, as ``float32`` or ``torch.float32``.
    """
    name = _TYPES.get(str(element_type).rsplit(".", 1)[-1], str(element_type))
    return "tf32" if name == "fp32" and value != PROBE else name


def require_precision(wanted: str, products: Dict[str, Tuple[float, Any]]) -> str:
    """Return ``wanted`` if all products were computed in it.

    Args:
        wanted: the job's precision.
        products: pairs ``(value, element type)`` by what was computed, as ``Session.probe_precision`` gives them.

    Raises RuntimeError that names what was computed otherwise.
    """
    found = {what: precision_of(*product) for what, product in products.items()}
    wrong = ["%s in %s" % (what, found[what]) for what in sorted(found) if found[what] != wanted]
    if wrong:
        raise RuntimeError(
            "the precision is to be %s, and the framework computed %s; a variable of the shell, as "
            "NVIDIA_TF32_OVERRIDE or TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, may say so" % (wanted, ", ".join(wrong))
        )
    return wanted
