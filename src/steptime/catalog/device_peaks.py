"""What data sheets promise of devices: dense matrix products per second, from ``device_peaks.toml``."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_PART = "mig"
"""In the name of a part of a device, of which no sheet has figures."""


def data_sheet_flop_per_s(name: str, precision: str) -> float | None:
    """Return FLOP/s of dense products at a precision; None of a device or a precision that no sheet here has.

    Args:
        name: of a device, as its driver gives it.
        precision: ``fp32``, ``tf32``, ``bf16`` or ``fp16``.

    >>> data_sheet_flop_per_s("NVIDIA A100-SXM4-40GB", "bf16")
    312000000000000.0
    """
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    if _PART in words:
        return None
    fitting = (each for each in _read() if words.issuperset(each["words"]) and words.isdisjoint(each["without"]))
    found: dict[str, Any] | None = next(fitting, None)
    return None if found is None else found["flop_per_s"].get(precision)


@cache
def _read() -> list[dict[str, Any]]:
    content = tomllib.loads(files("steptime.catalog").joinpath("device_peaks.toml").read_text("utf-8"))
    return [{"without": [], **each} for each in content["device"]]
