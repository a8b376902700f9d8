"""What a host says of itself, from files as the kernel and NVIDIA's driver write them; none of it was seen on a GPU."""

from pathlib import Path
from typing import Any

import pytest

from steptime.launchers.hosts.host_facts import gpu_facts, has_ipv6, interface_addresses, smi_gpus, usable_memory

GPUS = {
    "0000:3b:00.0": ("NVIDIA A100-SXM4-40GB", "GPU-1a2b0000-0000-0000-0000-000000000000", "0-1,8\n"),
    "0000:AF:00.0": ("NVIDIA A100-SXM4-40GB", "GPU-1a2c0000-0000-0000-0000-000000000000", "2-3\n"),
    "0000:d8:00.0": ("NVIDIA A40", "GPU-9f000000-0000-0000-0000-000000000000", ""),
}
SMI = """\
00000000:AF:00.0, NVIDIA A100-SXM4-40GB, GPU-1a2c0000-0000-0000-0000-000000000000, 8.0, 40960, 535.104.05, Disabled
00000000:3B:00.0, NVIDIA A100-SXM4-40GB, GPU-1a2b0000-0000-0000-0000-000000000000, 8.0, 40960, 535.104.05, [N/A]
"""


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    """The facts of a host with three GPUs and four cores."""
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC 12\n"
    )
    for address, (model, uuid, near) in GPUS.items():
        gpu, device = tmp_path / "driver" / "gpus" / address, tmp_path / "devices" / address.lower()
        gpu.mkdir(parents=True)
        device.mkdir(parents=True)
        (gpu / "information").write_text(
            f"Model: \t\t {model}\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n"
        )
        (device / "local_cpulist").write_text(near)

    def facts(visible: str | None, said: str = "") -> dict[str, Any]:
        return gpu_facts([0, 1, 2, 3], visible, str(tmp_path / "driver"), str(tmp_path / "devices"), said)

    return facts


def test_a_host_says_which_of_its_cores_are_next_to_each_gpu(asked):
    """A GPU of which nobody says may use all."""
    assert [gpu["cores"] for gpu in asked(None)["gpus"]] == [[0, 1], [2, 3], [0, 1, 2, 3]]


def test_a_host_names_its_gpus_and_their_driver(asked):
    found = asked(None)
    assert [gpu["model"] for gpu in found["gpus"]] == [model for model, _, _ in GPUS.values()]
    assert found["gpu_driver"] == "535.104.05"


def test_a_host_without_gpus_has_none(tmp_path):
    assert gpu_facts([0, 1], None, str(tmp_path / "none"), str(tmp_path), "")["gpus"] == []


@pytest.mark.parametrize(
    ("visible", "cores"),
    [
        ("1", [[2, 3]]),
        ("1,0", [[2, 3], [0, 1]]),
        ("GPU-1a2c", [[2, 3]]),
        ("GPU-9f000000-0000-0000-0000-000000000000,0", [[0, 1, 2, 3], [0, 1]]),
        ("GPU-1a2", []),  # the beginning of two
        ("0,7,1", [[0, 1]]),  # the list ends at what is not a GPU
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_only_the_gpus_that_a_worker_sees_are_counted_in_its_order(asked, visible, cores):
    assert [gpu["cores"] for gpu in asked(visible)["gpus"]] == cores


def test_parts_of_divided_gpus_are_not_counted_and_that_is_said(asked):
    found = asked("MIG-1a2b0000-0000-0000-0000-000000000000")
    assert found["gpus"] == []
    assert "(MIG)" in found["gpus_left_out"]


def test_a_gpu_that_is_divided_is_not_counted_where_no_variable_names_a_part(asked):
    """CUDA sees one part there, whatever the number of GPUs."""
    found = asked(None, SMI.replace("Disabled", "Enabled"))
    assert [gpu["cores"] for gpu in found["gpus"]] == [[0, 1]]
    assert "(MIG)" in found["gpus_left_out"]


def test_devices_that_a_control_group_hides_from_nvidia_smi_are_not_counted(asked):
    """Their indices are those of the devices that are left, as CUDA has them."""
    found = asked("0", SMI.splitlines()[0])
    assert found["gpus"] == [
        {"model": "NVIDIA A100-SXM4-40GB", "cores": [2, 3], "capability": "8.0", "memory_bytes": 40960 * 2**20}
    ]


def test_gpus_are_in_the_order_of_the_bus_whatever_the_order_of_nvidia_smi():
    assert [gpu["address"] for gpu in smi_gpus(SMI)] == ["0000:3b:00.0", "0000:af:00.0"]


@pytest.mark.parametrize("said", ["", "No devices were found", 'Field "compute_cap" is not a valid field to query.'])
def test_nvidia_smi_without_a_table_says_nothing_and_the_driver_is_believed(asked, said):
    assert len(asked(None, said)["gpus"]) == len(GPUS)


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/system.slice/job_7/step_0\n", "system.slice/job_7/memory.max"),
        ("5:cpuset:/\n4:memory:/slurm/job_7/step_0\n", "memory/slurm/job_7/memory.limit_in_bytes"),
        ("0::/\n", "memory.max"),  # a container whose own group is the root that it sees
    ],
)
def test_memory_is_no_more_than_the_limit_of_any_group_around_the_job(tmp_path, groups, file):
    limit = tmp_path / file
    limit.parent.mkdir(parents=True, exist_ok=True)
    limit.write_text("1048576\n")
    assert usable_memory(groups, str(tmp_path)) == 2**20


def test_memory_without_a_limit_is_what_is_available(tmp_path):
    (tmp_path / "memory.max").write_text("max\n")
    assert usable_memory("0::/\n", str(tmp_path)) > 2**20


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("20010db8000000000000000000000001 02 40 00 80     eth0", True),
        ("fe800000000000000000000000000001 02 40 20 80     eth0", False),
        ("00000000000000000000000000000001 01 80 10 80       lo", False),
    ],
)
def test_an_ipv6_address_is_one_that_leads_further_than_its_link(line, known):
    assert has_ipv6(line + "\n") == known


def test_loopback_has_its_address():
    assert "127.0.0.1" in interface_addresses()["lo"]
