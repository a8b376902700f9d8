"""Links by name: what data sheets state, for unmeasured ones; believed, with the widths given here.

Rates of NVLink and PCIe are those that NCCL expects of them (``src/graph/topo.h`` of https://github.com/NVIDIA/nccl: 20
GB/s for each link of the V100 and A100, 20.6 of the H100, 40.1 of the B200, 12 for PCIe 3 x16), a fifth below the
nominal ones. The numbers of links, 6, 12, 18 and 18, are those of NVIDIA's data sheets
(https://www.nvidia.com/en-us/data-center/nvlink/). InfiniBand and Ethernet are nominal signalling rates (InfiniBand
Trade Association, https://www.infinibandta.org/infiniband-roadmap/; IEEE 802.3) times what messages reach.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.model.collectives import (
    Link,
)
from steptime.model.nccl import STEP, Medium

_GIGA = 1e9


_REACHED, _TCP_REACHED = 0.96, 0.85
"""Of a nominal rate: by RDMA, and over sockets."""


_TCP_STEP = 30e-6


BELIEVED = (0.5, 0.25)
"""Standard deviations of the logarithms of the latency and the rate of a link whose name is known for certain."""


@dataclass(frozen=True)
class LinkSheet:
    """A kind of link as its data sheet has it."""

    name: str
    medium: Medium
    rate: float
    """Bytes per second in one direction, of one device or card, that long messages are believed to reach."""
    latency_s: float
    """Seconds of one step of a ring."""
    switch_share: float = 0.0
    """Share of the rate at which its switch reduces."""

    @property
    def link(self) -> Link:
        """The link that is believed."""
        return Link(self.rate, self.latency_s, medium=self.medium, switch_share=self.switch_share)


def _nvlink(name: str, gigabytes: float, switch_share: float = 0.0) -> LinkSheet:
    return LinkSheet(name, "nvlink", gigabytes * _GIGA, STEP["nvlink"], switch_share)


def _pcie(name: str, gigabytes: float) -> LinkSheet:
    return LinkSheet(name, "pcie", gigabytes * _GIGA, STEP["pcie"])


def _card(name: str, gigabits: float) -> LinkSheet:
    tcp = name.endswith("tcp")
    rate = gigabits * _GIGA / 8 * (_TCP_REACHED if tcp else _REACHED)
    return LinkSheet(name, "network", rate, _TCP_STEP if tcp else STEP["network"])


LINKS: Mapping[str, LinkSheet] = {
    sheet.name: sheet
    for sheet in (
        _nvlink("nvlink2", 120.0),
        _nvlink("nvlink3", 240.0),
        _nvlink("nvlink4", 370.8, 0.85),
        _nvlink("nvlink5", 721.8, 0.74),
        _pcie("pcie3", 6.0),
        _pcie("pcie4", 12.0),
        _pcie("pcie5", 24.0),
        _card("infiniband-edr", 100.0),
        _card("infiniband-hdr", 200.0),
        _card("infiniband-ndr", 400.0),
        _card("infiniband-xdr", 800.0),
        _card("roce-100g", 100.0),
        _card("roce-200g", 200.0),
        _card("roce-400g", 400.0),
        _card("ethernet-10g-tcp", 10.0),
        _card("ethernet-25g-tcp", 25.0),
        _card("ethernet-100g-tcp", 100.0),
    )
}
"""By name. Rings over PCIe cross the processors of a host, where both directions and several rings share one path: half
of what NCCL expects of a single pair."""


_OF_DEVICES: Mapping[str, str] = {
    r"v100.*sxm": "nvlink2",
    r"a100.*sxm|a800.*sxm": "nvlink3",
    r"h100.*(hbm3|sxm)|h200(?!.*nvl)|h800": "nvlink4",
    r"b200|b300|gb200": "nvlink5",
    r"v100|p100|k80|t4|2080|titan": "pcie3",
    r"a100|a10|a40|a30|3090|4090|l4|l40|a6000|6000": "pcie4",
    r"h100|h200|5090": "pcie5",
}
"""Inner links by the name that a driver gives a device, the first that fits: boards of eight have the links of SXM."""


def inner_link_of(device: str | None) -> LinkSheet:
    """Return what is believed to join the devices of a host, by the name that their driver gives them."""
    name = (device or "").lower()
    return LINKS[next((link for pattern, link in _OF_DEVICES.items() if re.search(pattern, name)), "pcie3")]
