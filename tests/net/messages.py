"""Launches of the network benchmark whose truth is known."""

import numpy as np

from steptime.results.net_records import NetLaunch, NetSetting, Visit, WorkerVisits

SIZES = (1024, 16384, 262144, 4194304)


def setting(workers: int = 2, operation: str = "allreduce", **fields) -> NetSetting:
    """A setting of a back end that is none."""
    given = {
        "back_end": "made-up",
        "framework": "none",
        "strategy": "allreduce",
        "options": {},
        "device": "cpu",
        "operations": (operation,),
        "sizes": SIZES,
        "workers": workers,
    }
    return NetSetting(**{**given, **fields})


def launch(  # noqa: PLR0913 - what is simulated has so many truths
    wanted: NetSetting,
    number: int,
    seconds,
    *,
    alpha_s: float = 1e-3,
    noise: float = 0.05,
    clocks=(0.0, 5000.0, -300.0, 77.0),
    hosts=True,
    status: str = "ok",
    wrong: int = 0,
) -> NetLaunch:
    """A launch whose messages take ``seconds(bytes)``, times the lognormal noise of runs and of launches."""
    rng = np.random.default_rng([7, wanted.workers, number])
    own = float(np.exp(rng.normal(0.0, noise / 2)))
    visits = [[] for _ in range(wanted.workers)]
    now = 10.0
    for index in range(wanted.rounds):
        for size in rng.permutation(list(wanted.sizes)):
            gaps = seconds(int(size)) * own * np.exp(rng.normal(0.0, noise, wanted.runs))
            ends = now + np.concatenate([[0.0], np.cumsum(gaps)])
            now = float(ends[-1]) + 0.01
            for rank in range(wanted.workers):
                # Workers end within a moment of each other; hosts' clocks are set as they like.
                seen = ends - rng.uniform(0.0, 1e-6, len(ends)) + (clocks[rank] if hosts else 0.0)
                visits[rank].append(Visit(wanted.operations[0], int(size), index, list(seen)))
    workers = [
        WorkerVisits(rank, f"h{rank}" if hosts else "h", visits[rank], 20, wrong, {"framework_version": "1"})
        for rank in range(wanted.workers)
    ]
    return NetLaunch(
        setting=wanted,
        launch=number,
        status=status,
        reason=None if status == "ok" else "because",
        started_at=f"2026-01-01T00:00:{number:02d}+00:00",
        wall_s=now,
        commands=[],
        environment={},
        noise={},
        alphas_s=[alpha_s * own] * (wanted.workers - 1),
        workers=workers if status != "failed" else [],
    )
