"""The GPUs of the host that this runs on, as its kernel and NVIDIA's driver tell of them; no framework is asked.

Host agents say it of other hosts; they run without site-packages, so that only the standard library is imported, and
``visible_devices``, which needs no more.
"""

import os
import re
import subprocess
from typing import Any

from steptime.catalog.visible_devices import visible_devices
from steptime.launchers.hosts.host_files import listed, read_text

DRIVER, PCI_DEVICES = "/proc/driver/nvidia", "/sys/bus/pci/devices"
_QUESTIONS = "pci.bus_id,name,uuid,compute_cap,memory.total,driver_version,mig.mode.current"
_LIMIT_S = 30.0
"""A driver that no program uses is started anew for each question, which takes seconds."""
_VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")
_DIVIDED = "parts of divided GPUs (MIG) are not counted"


def gpu_facts(
    own_cores: list[int], visible: str | None, folder: str = DRIVER, devices: str = PCI_DEVICES, said: str | None = None
) -> dict[str, Any]:
    """Return the GPUs that a worker on this host sees, in its order, their driver, and what hides others.

    ``nvidia-smi`` is believed first: a job's control group hides devices from it, as from CUDA, and none from the
    driver's own folder. Each GPU has ``model``, ``cores`` (those of ``own_cores`` on its NUMA node; all where unknown),
    ``capability`` (as ``8.0``) and ``memory_bytes``; None is unknown.

    Args:
        own_cores: that processes may use.
        visible: the value of CUDA_VISIBLE_DEVICES; None if it is not set.
        folder: of the driver, in /proc.
        devices: the kernel's folder of PCI devices.
        said: the output of ``nvidia-smi``; it is asked by default.
    """
    found = smi_gpus(_ask() if said is None else said) or _listed_gpus(folder)
    if visible is not None:
        chosen = visible_devices(visible, [str(each["uuid"]) for each in found])
        found = [found[index] for index in chosen]
    whole = [each for each in found if not each["divided"]]
    return {
        "gpus": [
            {
                "model": each["model"],
                "cores": _near(own_cores, each["address"], devices),
                "capability": each["capability"],
                "memory_bytes": each["memory_bytes"],
            }
            for each in whole
        ],
        "gpu_driver": found[0]["driver"] if found else None,
        "gpus_visible": visible,
        "gpus_left_out": _DIVIDED if len(whole) < len(found) or (visible or "").startswith("MIG-") else None,
    }


def smi_gpus(said: str) -> list[dict[str, Any]]:
    """Return the GPUs of a table that ``nvidia-smi`` printed, by their addresses on the bus; none of any other text."""
    found = []
    for line in said.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_QUESTIONS.split(",")) or not fields[2].startswith("GPU-"):
            return []
        address, model, uuid, capability, mebibytes, driver, divided = fields
        found.append(
            {
                "address": address.lower()[-12:],  # the kernel writes the domain with four digits
                "model": model,
                "uuid": uuid,
                "capability": capability if re.fullmatch(r"\d+\.\d+", capability) else None,
                "memory_bytes": float(mebibytes) * 2**20 if mebibytes.isdecimal() else None,
                "driver": driver,
                "divided": divided == "Enabled",
            }
        )
    return sorted(found, key=lambda each: str(each["address"]))


def _ask() -> str:
    command = ["nvidia-smi", f"--query-gpu={_QUESTIONS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _listed_gpus(folder: str) -> list[dict[str, Any]]:
    """Return the GPUs that the driver lists in /proc, with the facts there; capability and memory it does not."""
    gpus = os.path.join(folder, "gpus")  # noqa: PTH118
    version = _VERSION.search(read_text(os.path.join(folder, "version")))  # noqa: PTH118
    found = []
    for address in sorted(listed(gpus), key=str.lower):
        lines = read_text(os.path.join(gpus, address, "information")).splitlines()  # noqa: PTH118
        said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        found.append(
            {
                "address": address.lower(),
                "model": said.get("Model"),
                "uuid": said.get("GPU UUID", ""),
                "capability": None,
                "memory_bytes": None,
                "driver": version.group() if version else None,
                "divided": False,
            }
        )
    return found


def _near(own: list[int], address: str, devices: str) -> list[int]:
    """Return the ``own`` cores on the NUMA node of the GPU at ``address``; all if that is unknown."""
    near: set[int] = set()
    for part in read_text(os.path.join(devices, address, "local_cpulist")).strip().split(","):  # noqa: PTH118
        first, _, last = part.partition("-")
        if first.isdecimal():
            near.update(range(int(first), int(last or first) + 1))
    return [core for core in own if core in near] or own
