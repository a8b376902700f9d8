"""Bytes of gradients of workloads, also of workloads known by their size alone."""

import pytest

from steptime.curves.facts import gradient_bytes


@pytest.mark.parametrize(("name", "millions"), [("resnet50", 25.6), ("bert_base", 109.5), ("bert_large", 335.1)])
def test_gradients_are_as_large_as_published(name, millions):
    assert gradient_bytes(name) == pytest.approx(millions * 4e6, rel=2e-3)


def test_an_unknown_workload_has_unknown_gradients():
    assert gradient_bytes("something else") is None
