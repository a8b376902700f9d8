"""What holds for the table of strategies."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import steptime
from steptime.catalog.choices import SINGLE, STRATEGIES, strategy_named
from steptime.catalog.manifest import load_manifests


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_explained_in_a_line_without_a_full_stop(name):
    assert 20 < len(STRATEGIES[name].summary) < 110
    assert not STRATEGIES[name].summary.endswith(".")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_known_to_a_framework(name):
    assert [framework for framework, manifest in load_manifests().items() if name in manifest.strategies]


def test_every_strategy_of_a_framework_is_in_the_table():
    known = {name for manifest in load_manifests().values() for name in manifest.strategies}
    assert known == set(STRATEGIES)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=lambda strategy: strategy.name)
def test_a_strategy_that_has_one_right_answer_is_synchronous(strategy):
    assert strategy.synchronous or not strategy.exact


def test_one_strategy_is_the_baseline_of_the_others():
    assert [strategy for strategy in STRATEGIES.values() if strategy.single_baseline] == [SINGLE]


def test_no_name_or_alias_stands_for_two_strategies():
    names = [name for strategy in STRATEGIES.values() for name in (strategy.name, *strategy.aliases)]
    assert len(names) == len(set(names))


def test_a_name_that_is_not_in_the_table_is_a_synchronous_strategy_without_servers():
    unknown = strategy_named("gossip")
    assert unknown.synchronous
    assert not unknown.servers
    assert not unknown.single_baseline


def _names_tested(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of every comparison with the name of a strategy, and of every set of such names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            if any("operation" in ast.unparse(part) for part in parts):  # a collective may be called as a strategy is
                continue
        elif isinstance(node, ast.Set | ast.List):
            parts = node.elts
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            parts = node.args
        else:
            continue
        for part in parts:
            if isinstance(part, ast.Constant) and part.value in {*(STRATEGIES.keys() - {"allreduce"}), "ps_", "zero"}:
                yield node.lineno, str(part.value)


def test_nobody_asks_for_a_strategy_by_its_name_but_frameworks_for_their_own():
    root = Path(steptime.__file__).parent
    elsewhere = [
        path
        for path in root.rglob("*.py")
        if path.name != "strategies.py" and path.relative_to(root).parts[0] not in {"frameworks", "libraries"}
    ]
    found = [
        f"{path.relative_to(root)}:{line} {name}"
        for path in elsewhere
        for line, name in _names_tested(ast.parse(path.read_text()))
    ]
    assert found == []
