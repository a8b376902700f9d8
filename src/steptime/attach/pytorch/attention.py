"""Whether a network attends, by the graph of its first forward: attention has no class of its own in many scripts."""

from __future__ import annotations

from typing import Any

# Nodes of a graph that are looked at, and nodes between a softmax and the products beside it.
LARGEST, BETWEEN = 20_000, 8
FUSED, SOFTMAX, PRODUCT = "ScaledDotProduct", "SoftmaxBackward", "BmmBackward"


def attends(result: Any) -> bool:
    """Return whether the graph of a forward's ``result`` has attention.

    That is a call of `scaled_dot_product_attention`, or a softmax between two products of batches of matrices.
    """
    inside = dict.values(result) if isinstance(result, dict) else result
    values = inside if isinstance(result, (dict, list, tuple)) else [result]
    waiting = [node for node in (getattr(each, "grad_fn", None) for each in values) if node is not None]
    seen: set[Any] = set(waiting)
    while waiting and len(seen) < LARGEST:
        node = waiting.pop()
        name = node.name()
        if FUSED in name or (PRODUCT in name and any(_leads(each, PRODUCT) for each in _near(node, SOFTMAX))):
            return True
        further = [each for each, _ in node.next_functions if each is not None and each not in seen]
        seen.update(further)
        waiting += further
    return False


def _leads(node: Any, name: str) -> bool:
    return bool(_near(node, name))


def _near(node: Any, name: str) -> list[Any]:
    """Return the nodes with ``name`` that a few steps lead to, without another product between."""
    here, met = [node], []
    for _ in range(BETWEEN):
        here = [each for one in here for each, _ in one.next_functions if each is not None]
        met += [each for each in here if name in each.name()]
        here = [each for each in here if name not in each.name() and PRODUCT not in each.name()]
    return met
