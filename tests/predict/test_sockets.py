"""What is known of links between emulated hosts that nobody measured: they are sockets."""

from dataclasses import replace

import numpy as np
import pytest
from truth import KEY, TRUTH

from steptime.predict.fit import scene_of
from steptime.predict.observation import Setting
from steptime.predict.profile import LinkFacts
from steptime.predict.step_model import play


def _communicates(hosts: int, *, emulated: bool) -> float:
    """Return the seconds that ChainerMN's workers, one a host, wait for ResNet-50's gradients."""
    key = replace(KEY, framework="chainer", workload="resnet50", input_shape=(3, 64, 64))
    setting = Setting(workers=hosts, batch=8, hosts=hosts, emulated=emulated)
    link = LinkFacts(start_s=0.0, rate=25e6, source="net", between_hosts=True)
    scene = scene_of(key, setting, link, (hosts, hosts))
    phases = play({name: np.full(1, value) for name, value in TRUTH.items()}, scene)
    return float(phases["comm_exposed"][0])


def test_four_emulated_hosts_wait_for_the_receivers_of_long_messages():
    assert _communicates(4, emulated=True) > 1.1 * _communicates(4, emulated=False)


def test_two_emulated_hosts_do_not():
    assert _communicates(2, emulated=True) == pytest.approx(_communicates(2, emulated=False))
