"""``python matrix_product.py DEVICE PRECISION SECONDS``: how quickly a device multiplies matrices, as JSON.

The product of two square matrices by the first of PyTorch, JAX, CuPy and NumPy that this interpreter has and that
knows device and precision. Results stay on the device, and the device is waited for once for many products.
"""

import importlib
import json
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

ROUNDS = 5
_SIZES = {"cpu": 1024, "cuda": 8192}
_FEWEST_S = 0.02
"""Of products between two readings of the clock."""
_TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}

Multiply = Callable[[int], None]
"""Makes so many products and waits for them."""


def measure(device: str, precision: str, seconds: float) -> Dict[str, Any]:
    """Return ``library``, ``version``, ``size`` of the matrices, and FLOP/s of each of ``ROUNDS`` rounds.

    Args:
        device: ``cpu`` or ``cuda``.
        precision: of the factors: ``fp32``, ``tf32``, ``bf16`` or ``fp16``.
        seconds: of all rounds together, about.

    Raises RuntimeError where no library here can.
    """
    size = _SIZES[device]
    library, version, multiply = _quickest(device, precision, size)
    multiply(1)
    count, wanted = 1, max(_FEWEST_S, seconds / ROUNDS)
    taken = _timed(multiply, count)
    while taken < wanted / 2:
        count = max(count + 1, min(8 * count, int(count * wanted / taken)))
        taken = _timed(multiply, count)
    rates: List[float] = [2.0 * size**3 * count / _timed(multiply, count) for _ in range(ROUNDS)]
    return {"library": library, "version": version, "size": size, "flop_per_s": rates}


def _timed(multiply: Multiply, count: int) -> float:
    started = time.perf_counter()
    multiply(count)
    return time.perf_counter() - started


def _quickest(device: str, precision: str, size: int) -> Tuple[str, str, Multiply]:
    makers = {"torch": _by_torch, "jax": _by_jax, "cupy": _by_cupy, "numpy": _by_numpy}
    for name, maker in makers.items():
        try:
            module = importlib.import_module(name)
            multiply = maker(module, device, precision, size)
        except ImportError:
            continue
        if multiply is not None:
            return name, str(module.__version__), multiply
    raise RuntimeError("no library here multiplies %s matrices on %s" % (precision, device))


def _by_torch(torch: Any, device: str, precision: str, size: int) -> Optional[Multiply]:
    if (device == "cuda" and not torch.cuda.is_available()) or (device == "cpu" and precision in {"tf32", "fp16"}):
        return None
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    a, b = (torch.rand(size, size, device=device).to(getattr(torch, _TYPES[precision])) for _ in range(2))
    out = torch.empty_like(a)

    def multiply(count: int) -> None:
        for _ in range(count):
            torch.mm(a, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize()

    return multiply


def _by_jax(jax: Any, device: str, precision: str, size: int) -> Optional[Multiply]:
    if (jax.default_backend() == "cpu") != (device == "cpu") or (device == "cpu" and precision in {"tf32", "fp16"}):
        return None
    exact = {"fp32": "float32", "tf32": "tensorfloat32"}.get(precision)
    a = jax.numpy.ones((size, size), _TYPES[precision])
    product = jax.jit(lambda x, y: jax.numpy.matmul(x, y, precision=exact))

    def multiply(count: int) -> None:
        found = None
        for _ in range(count):
            found = product(a, a)
        if found is not None:
            found.block_until_ready()

    return multiply


def _by_cupy(cupy: Any, device: str, precision: str, size: int) -> Optional[Multiply]:
    if device == "cpu" or precision not in {"fp32", "fp16"}:
        return None
    a = cupy.ones((size, size), _TYPES[precision])

    def multiply(count: int) -> None:
        for _ in range(count):
            cupy.matmul(a, a)
        cupy.cuda.Stream.null.synchronize()

    return multiply


def _by_numpy(numpy: Any, device: str, precision: str, size: int) -> Optional[Multiply]:
    if device != "cpu" or precision != "fp32":
        return None
    a = numpy.ones((size, size), numpy.float32)
    out = numpy.empty_like(a)

    def multiply(count: int) -> None:
        for _ in range(count):
            numpy.matmul(a, a, out=out)

    return multiply


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], sys.argv[2], float(sys.argv[3]))) + "\n")
