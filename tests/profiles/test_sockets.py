"""What is known of links between emulated hosts that nobody measured: they are sockets."""

from dataclasses import replace

import numpy as np
import pytest
from truth import KEY, TRUTH

from steptime.perfmodels.communication.link import Link
from steptime.profiles.observation import Setting
from steptime.profiles.playing import Scene, play
from steptime.stepgraph.graph import step_graph
from steptime.stepgraph.plan import Circumstances
from steptime.stepgraph.work import work_of
from steptime.workloads.table import build_workload


def _communicates(hosts: int, *, emulated: bool) -> float:
    """Return the seconds that ChainerMN's workers, one a host, wait for ResNet-50's gradients."""
    key = replace(KEY, framework="chainer", workload="resnet50", input_shape=(3, 64, 64))
    setting = Setting(workers=hosts, batch=8, hosts=hosts, emulated=emulated)
    work = work_of(build_workload(key.workload, key.input_shape, key.classes))
    graph = step_graph(work, key.framework, key.strategy, Circumstances(workers=hosts, batch=8))
    scene = Scene(setting, graph, Link(25e6), crowd=hosts, slots=hosts)
    phases = play({name: np.full(1, value) for name, value in TRUTH.items()}, scene)
    return float(phases["comm_exposed"][0])


def test_four_emulated_hosts_wait_for_the_receivers_of_long_messages():
    assert _communicates(4, emulated=True) > 1.1 * _communicates(4, emulated=False)


def test_two_emulated_hosts_do_not():
    assert _communicates(2, emulated=True) == pytest.approx(_communicates(2, emulated=False))
