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
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Tuple

from steptime.worker.process_context import Job

if TYPE_CHECKING:
    import numpy

PROBE = 1.0 + 2.0**-12
"""A number of 13 bits: float32 keeps it, and the other formats round it to 1."""
_ROUNDED = 2.0**-16
"""How far a product in float32 may be from ``PROBE``, as where it is put together from products of shorter numbers."""
_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class ProbeSize(NamedTuple):
    """The arrays that are multiplied: square matrices, and square images of as many channels as come out."""

    matrix: int
    channels: int
    image: int
    kernel: int


def probe_size(device: str) -> ProbeSize:
    """Return the sizes with which a device computes as it does in training.

    cuBLAS uses TF32 for products of at least 16 rows whose other sides are at least 512, and cuDNN chooses its
    algorithm by the channels and the kernel.
    """
    return ProbeSize(64, 64, 64, 1) if device == "cpu" else ProbeSize(1024, 256, 64, 3)


def identity_kernel(size: ProbeSize) -> "numpy.ndarray":
    """Return the kernel of a convolution that changes nothing but the border, float32: out, in, height, width."""
    import numpy

    kernel = numpy.zeros((size.channels, size.channels, size.kernel, size.kernel), numpy.float32)
    middle = size.kernel // 2
    kernel[:, :, middle, middle] = numpy.eye(size.channels)
    return kernel


def limit_libraries(job: Job) -> None:
    """Let NVIDIA's libraries use TF32 only where the job asks for it; to be called before the framework is imported.

    The variable is NVIDIA's own, and takes precedence over what a framework asks of cuBLAS and cuDNN.
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
    return "tf32" if name == "fp32" and abs(value - PROBE) > _ROUNDED else name


def require_precision(wanted: str, products: Dict[str, Tuple[float, Any]]) -> str:
    """Return ``wanted`` if all products were computed in it; a library may use fp32 where TF32 is allowed.

    Args:
        wanted: the job's precision.
        products: pairs ``(value, element type)`` by what was computed, as ``Session.probe_precision`` gives them.

    Raises RuntimeError that names what was computed otherwise.
    """
    allowed = ("tf32", "fp32") if wanted == "tf32" else (wanted,)
    found = {what: precision_of(*product) for what, product in products.items()}
    wrong = ["%s in %s" % (what, found[what]) for what in sorted(found) if found[what] not in allowed]
    if wrong:
        raise RuntimeError(
            "the precision is to be %s, and the framework computed %s; a variable of the shell, as "
            "NVIDIA_TF32_OVERRIDE or TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, may say so" % (wanted, ", ".join(wrong))
        )
    return wanted


def computed_in(products: Dict[str, Tuple[float, Any]]) -> str:
    """Return ``convolutions tf32, matrix products fp32``: the precision of each product, as a fact of the launch."""
    return ", ".join("%s %s" % (what, precision_of(*products[what])) for what in sorted(products))
