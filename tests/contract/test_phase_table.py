"""The table of phases is their only list: a new phase is a row of it, and the code that measures or models it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import steptime
from steptime.phases import HIDDEN, IN_TIME, MARKS, NAMES, PHASES
from steptime.worker.session import MARKS as MARKS_OF_WORKERS

SOURCE = Path(steptime.__file__).parent
TABLE = "phases.py"
WORKER_HALF = ("worker", "libraries", "frameworks", "attach")
"""Folders of programs that mark stages and cannot import the table."""
KNOWN = {phase.name for phase in (*PHASES, HIDDEN)}
TITLES = {phase.title for phase in (*PHASES, HIDDEN)} - KNOWN - {"rest"}
"""Words of a report that stand for nothing else."""
PASSES = {"forward", "backward"}
EXCHANGE = {"comm_exposed", "sync_wait"}
ALLOWED: dict[str, tuple[set[str], str]] = {
    "diagnosis/communication.py": ({"comm_exposed"}, "has the rules about this phase"),
    "diagnosis/computation.py": (PASSES | {"comm_exposed", "input_wait", "update"}, "has the rules about these phases"),
    "diagnosis/input_rules.py": ({"h2d", "input_wait"}, "has the rules about these phases"),
    "diagnosis/own_script.py": (EXCHANGE | {"input_wait"}, "has the rules about these phases of a user's script"),
    "diagnosis/scenarios.py": ({"backward", "comm_exposed", "input_wait"}, "simulates a step without a phase"),
    "diagnosis/workers.py": (PASSES | EXCHANGE | {"update"}, "has the rules about workers beside each other"),
    "analysis/ablation/stages.py": ({*NAMES} - {"residual"}, "measures phases as differences of stages"),
    "analysis/ablation/accounts.py": (EXCHANGE | {"h2d"}, "measures the phases that a mark ends"),
    "analysis/ablation/breakdown.py": (EXCHANGE | {"h2d", "input_wait"}, "knows where a phase cannot occur"),
    "analysis/ablation/nested_stages.py": ({*NAMES} - {"residual"}, "knows the order in which stages are nested"),
    "analysis/ablation/pop.py": (EXCHANGE | {"input_wait"}, "defines efficiencies by phases"),
    "attached/exchange.py": (PASSES, "knows sharded parameters by the passes of their collectives"),
    "attached/device_steps.py": ({"forward"}, "gives the host's waiting for input to the gap before a pass"),
    "attached/findings.py": (EXCHANGE | {"input_wait", "update"}, "finds what takes long in a step"),
    "attached/job_time.py": ({"input_wait"}, "adds up the waiting for input of a whole job"),
    "attached/separate_models.py": (EXCHANGE, "knows where nothing of an exchange can be seen"),
    "attached/summary.py": ({"forward"}, "counts passes where no step was made"),
    "attached/step_kinds.py": ({"update"}, "counts the updates of a round of steps"),
    "attached/step_parts.py": (PASSES | EXCHANGE | {"input_wait", "update"}, "makes phases of regions"),
    "attached/straggler.py": (EXCHANGE, "leaves out what a slow rank makes others wait"),
    "imported/imported_run.py": (PASSES | EXCHANGE | {"input_wait", "update"}, "lists parts that a file may lack"),
    "imported/kineto.py": ({"update"}, "knows the optimizer's mark on a device"),
    "imported/trace_steps.py": (PASSES | {"update", "input_wait"}, "knows what a trace divides"),
    "results/ablation_records.py": (PASSES, "names the stages that are divided by"),
    "exports/chrome_trace.py": (EXCHANGE | {"backward"}, "splits an exchange at the last arrival"),
    "fitting/attached_profile.py": (EXCHANGE | {"backward"}, "keeps the step of an attached script"),
    "fitting/compute_fit.py": (PASSES | {"input_wait", "update"}, "fits the parameters of these phases"),
    "fitting/fit.py": ({"backward"}, "asks whether a launch has measured passes"),
    "fitting/importance_sampling.py": ({"comm_exposed", "comm_hidden"}, "fits the share of an exchange that hides"),
    "fitting/observation.py": (PASSES, "reads the marks between which messages become ready"),
    "predict/predict.py": ({*NAMES}, "tells which part of a step a decision rests on"),
    "predict/parameter_draws.py": (PASSES, "scales passes to another workload or device"),
    "predict/model_comparison.py": ({*NAMES} - {"residual"}, "models what a remedy would save of a phase"),
    "fitting/step_model.py": ({*NAMES, "comm_hidden"}, "models every phase"),
    "report/attached.py": ({"sync_wait"}, "names the rank that is waited for"),
    "report/breakdown_section.py": ({"comm_exposed"}, "draws covered and exposed communication"),
    "document/charts/phases.py": ({"comm_exposed"}, "draws covered and exposed communication"),
    "equivalence/verdict.py": ({"update"}, "speaks of the update of weights that a check compares"),
    "simulate/simulate.py": (EXCHANGE | {"comm_hidden", "input_wait"}, "simulates phases"),
}
"""Files of the core that name a phase: which, and why they may."""


def named_in(text: str) -> set[str]:
    """Return the phases that a module names: in strings but docstrings, and as arguments, fields and attributes."""
    return {name for word in words(ast.parse(text)) for name in word.split(" + ") if name in KNOWN | TITLES}


def words(tree: ast.AST) -> Iterator[str]:
    """Yield every string constant that is an expression's part, and every identifier that no other noun has."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value
        identifier = getattr(node, "attr", None) or getattr(node, "arg", None) or getattr(node, "id", None)
        if isinstance(identifier, str) and "_" in identifier:
            yield identifier


def files() -> dict[str, set[str]]:
    """Return the phases that each file of the core names, by the file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        if place != TABLE and place.split("/")[0] not in WORKER_HALF and (named := named_in(path.read_text())):
            found[place] = named
    return found


def test_only_code_that_measures_or_models_a_phase_names_it():
    """A file that names others than ALLOWED lists, or no more those, fails."""
    assert files() == {place: names for place, (names, _) in ALLOWED.items()}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.j2")), ids=lambda path: path.name)
def test_no_template_names_a_phase(path):
    text = path.read_text()
    assert [name for name in sorted(KNOWN | TITLES) if "_" in name or " " in name if name in text] == []


def test_a_second_list_of_phases_is_found():
    assert named_in('ORDER = ("input_wait", "residual")\n') == {"input_wait", "residual"}
    assert named_in('"""Of input_wait."""\nx = row.sync_wait\n') == {"sync_wait"}
    assert named_in('TITLE = "exposed comm."\n') == {"exposed comm."}


def test_both_orders_have_every_phase_once():
    assert sorted(NAMES) == sorted(IN_TIME) == sorted({phase.name for phase in PHASES})


def test_phases_of_a_page_have_colours_of_their_own():
    assert len({phase.colour for phase in (*PHASES, HIDDEN)}) == len(PHASES) + 1


def test_frameworks_set_the_marks_of_the_table_in_its_order():
    assert MARKS == MARKS_OF_WORKERS
