"""What torch.compile made of a script, as Dynamo's own counters have it when the process ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sized

    from ..recorder import Recorder


# Failed guards that are kept, and their characters.
GUARDS, LONGEST = 8, 300


def install(recorder: Recorder, weights: Sized) -> None:
    """Have the line about graphs written at the end, with the number of ``weights``, where the script compiled."""

    def write() -> None:
        counts = counted(sys.modules.get("torch._dynamo.utils"))
        if counts is not None:
            recorder.file.write({"kind": "graphs", **counts, "weights": len(weights)}, opens=False)

    recorder.at_end.append(write)


def counted(module: Any) -> dict[str, Any] | None:
    """Return how often Dynamo tried, and what is in its graphs; None if it did not try or counts otherwise.

    ``module`` is `torch._dynamo.utils`, or None if nothing has imported it; it is not imported here.
    """
    counters = getattr(module, "counters", None)
    if not isinstance(counters, dict) or not counters.get("frames", {}).get("total"):
        return None
    made = counters.get("stats", {})
    return {
        "frames": int(counters["frames"]["total"]),
        "operations": int(made.get("calls_captured", 0)),
        "graphs": int(made.get("unique_graphs", 0)),
        "breaks": sum(map(int, counters.get("graph_break", {}).values())),
        **recompiled(module),
    }


def recompiled(module: Any) -> dict[str, Any]:
    """Return how often Dynamo compiled a frame anew, how long that took and for which guards; nothing if it never did.

    It keeps the latest compilations alone.
    """
    kept = module.get_compilation_metrics() if hasattr(module, "get_compilation_metrics") else []
    again = [each for each in kept if getattr(each, "recompile_reason", None)]
    if not again:
        return {}
    took = sum(int(getattr(each, "duration_us", None) or 0) for each in again) * 1000
    guards = [str(each.recompile_reason).strip()[:LONGEST] for each in again]
    return {"recompilations": len(again), "recompile_ns": took, "guards": list(dict.fromkeys(guards))[:GUARDS]}
