"""What is known of links between emulated hosts that nobody measured: they are sockets."""

from dataclasses import replace

import numpy as np
import pytest
from world import KEY, TRUTH

from steptime.predict.observation import Deployment
from steptime.predict.profile import LinkEstimate
from steptime.predict.step_model import Contention, phases_of
from steptime.predict.topology import step_model_of


def _communicates(hosts: int, *, emulated: bool) -> float:
    """Return the seconds that ChainerMN's workers, one a host, wait for ResNet-50's gradients."""
    key = replace(KEY, framework="chainer", workload="resnet50", input_shape=(3, 64, 64))
    deployment = Deployment(workers=hosts, batch=8, hosts=hosts, emulated=emulated)
    link = LinkEstimate(latency_s=0.0, rate=25e6, source="net", between_hosts=True)
    step_model = step_model_of(key, deployment, link, Contention(hosts, hosts))
    phases = phases_of({name: np.full(1, value) for name, value in TRUTH.items()}, step_model)
    return float(phases["comm_exposed"][0])


def test_four_emulated_hosts_wait_for_the_receivers_of_long_messages():
    assert _communicates(4, emulated=True) > 1.1 * _communicates(4, emulated=False)


def test_two_emulated_hosts_do_not():
    assert _communicates(2, emulated=True) == pytest.approx(_communicates(2, emulated=False))
