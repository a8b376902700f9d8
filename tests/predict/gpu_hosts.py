"""Observations of hosts of devices, with steps that a test states."""

from dataclasses import replace

from world import KEY, a_profile

from steptime.fitting.observation import Deployment, LaunchPhases, Observation
from steptime.fitting.profile import Machine, NetLink

GPU_HOST = Machine(cpu="made up", cores=64, gpus=8, gpu="NVIDIA A100-SXM4-80GB")
RESNET = replace(KEY, device="cuda", workload="resnet50", input_shape=(3, 224, 224), classes=1000)
BATCH = 64


def a_gpu_observation(
    workers: int, step_s: float, communication_s: float | None = None, hosts: int = 1, computing_s: float = 0.1
) -> Observation:
    """Return what workers of full hosts measured in three launches that hardly differ."""
    phases = {"forward": computing_s / 3, "backward": 2 * computing_s / 3, "update": 0.0, "input_wait": 0.0}
    seen = LaunchPhases(
        phases,
        communication_s,
        input_s=0.0,
        persistent=0.003 if workers > 1 else None,
        transient=0.003 if workers > 1 else None,
    )
    return Observation(
        trial=f"gpus-{hosts}x{workers // hosts}",
        key=RESNET if workers > 1 else replace(RESNET, strategy="single"),
        deployment=Deployment(workers, BATCH, hosts=hosts, workers_per_host=workers // hosts),
        steps_s=(step_s * 0.998, step_s, step_s * 1.002),
        step_count=300,
        launch_phases=(seen, seen),
    )


def a_gpu_profile(*observations: Observation, net: tuple[NetLink, ...] = ()):
    """Return the profile of one device alone and of further observations."""
    return a_profile([a_gpu_observation(1, 0.1), *observations], net, GPU_HOST)
