"""Race a framework's adapter against the framework's own example or benchmark script.

::

    python benchmarks/adapters/race_official.py horovod-pytorch-synthetic FOLDER/pytorch_synthetic_benchmark.py \
        --workers 2 --batch 4 --steps 6 --blocks 6 --commit SHA --record benchmarks/adapters/official-scripts.jsonl

The script is fetched by whoever runs the race, from the address that ``--list`` shows, and runs unchanged under the
command line that its authors give; ``official/script.py`` says what it finds in place of packages that are not
installed. Both rivals train the same model with the same batch and optimizer; where a script allows no more, its
``differences`` say so. ``race.py`` says how blocks are run and ratios are formed.

``--record`` appends the result to a file, with the script's address, commit and digest and with every setting of the
adapter; ``--table`` prints the table of a file of results.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from official.script import OfficialScript, ScriptRun
from official.table import OFFICIAL_SCRIPTS
from race import (
    Cost,
    Race,
    add_arguments,
    given_options,
    interleave,
    interpreter,
    outputs_of,
    start_on,
)

from steptime.catalog.manifest import load_manifests
from steptime.errors import choices_message
from steptime.launchers.base import free_ports
from steptime.launchers.process_env import cores_in_words, inherited, pins, shared_variables

_HERE = Path(__file__).parent


def main() -> None:
    """Run the blocks, print each, and print the summary as one JSON line."""
    arguments = _parse()
    if arguments.list:
        print("\n".join(f"{name}\n    {each.framework}: {each.url}" for name, each in OFFICIAL_SCRIPTS.items()))
        return
    if arguments.table:
        print(table_of(arguments.table.read_text().splitlines()))
        return
    official = _official(arguments)
    manifest = load_manifests()[official.framework]
    race = Race(
        manifest=manifest,
        python=arguments.python or interpreter(official.framework),
        strategy=official.strategies[arguments.workers],
        workload=arguments.workload or official.workloads[0],
        batch=arguments.batch,
        workers=arguments.workers,
        servers=0,
        steps=arguments.steps,
        warmup=arguments.warmup,
        time_limit_s=arguments.time_limit,
        tuning=arguments.tuning,
        options={**official.options, **given_options(arguments.option)},
        optimizer=official.optimizer,
    )
    result = interleave(race, lambda race: script_cost(race, official, arguments.script), "script", arguments.blocks)
    result = {
        "name": arguments.name,
        "url": official.url,
        "commit": arguments.commit,
        "sha256": hashlib.sha256(arguments.script.read_bytes()).hexdigest(),
        "differences": list(official.differences),
        **result,
    }
    print(json.dumps(result))
    if arguments.record:
        with arguments.record.open("a") as file:
            file.write(json.dumps(result) + "\n")


def script_cost(race: Race, official: OfficialScript, script: Path) -> Cost:
    """Launch the script once on the adapter's cores and return what a step cost."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run = ScriptRun(
            race.python,
            script.resolve(),
            folder,
            race.workload,
            race.batch,
            race.workers,
            race.steps,
            race.warmup,
            free_ports(1)[0],
        )
        environment = _environment(race, official, run)
        processes = [start_on((), command, environment, folder) for command in official.commands(run)]
        return official.cost(run, "".join(outputs_of(processes, race.time_limit_s, script.name)))


def table_of(lines: Iterable[str]) -> str:
    """Return the Markdown table of results that ``--record`` wrote, a line each."""
    rows = [
        "| script, commit | adapter | trained | blocks | throughput, adapter / script | per CPU second |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        result = json.loads(line)
        link = f"[{result['name']}]({result['url']}) {result['commit'][:10]}"
        adapter = f"{result['framework']} {result['strategy']}, {result['tuning']}"
        trained = f"{result['workload']}, {result['workers']} x {result['batch_per_worker']}"
        ratios = [_in_words(result[key]) for key in ("throughput_ratio", "throughput_per_cpu_s_ratio")]
        rows.append(f"| {link} | {adapter} | {trained} | {result['blocks']} | {' | '.join(ratios)} |")
    return "\n".join(rows)


def _in_words(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return "unknown"
    interval = "" if ratio["low"] is None else f" ({ratio['low']:.3f} to {ratio['high']:.3f})"
    return f"{ratio['value']:.3f}{interval}"


def _environment(race: Race, official: OfficialScript, run: ScriptRun) -> dict[str, str]:
    request = race.request(run.folder)
    shared = shared_variables(request, "", "127.0.0.1", free_ports(1 + race.workers))
    shown = {name: value for name, value in shared.items() if not name.startswith("STEPTIME_")}
    modules = [_HERE / "official" / name for name in ("modules", official.modules) if name]
    return {
        **inherited(os.environ),
        **shown,
        "PYTHONPATH": os.pathsep.join(map(str, [*modules, _HERE])),
        "PATH": os.pathsep.join([str(race.python.parent), os.environ.get("PATH", os.defpath)]),
        # Torch waits for ever for the lock of a build that was killed, as DeepSpeed's on a processor once was.
        "TORCH_EXTENSIONS_DIR": str(Path(tempfile.gettempdir()) / f"race-{os.getpid()}-extensions"),
        "RACE_CORES": cores_in_words(pins(request)),
        "RACE_FOLDER": str(run.folder),
        "RACE_BATCH": str(race.batch),
        "RACE_WORKERS": str(race.workers),
        "RACE_STEPS": str(race.warmup + race.steps),
        **official.environment,
    }


def _official(arguments: argparse.Namespace) -> OfficialScript:
    official = OFFICIAL_SCRIPTS.get(arguments.name)
    if official is None:
        sys.exit(choices_message("official script", arguments.name, OFFICIAL_SCRIPTS))
    if arguments.script is None or not arguments.script.is_file():
        sys.exit(f"fetch the script from {official.url} and give its path; {arguments.script} is not a file")
    if arguments.workers not in official.strategies:
        sys.exit(f"{arguments.name} runs with {sorted(official.strategies)} workers, not with {arguments.workers}")
    if arguments.workload and arguments.workload not in official.workloads:
        sys.exit(choices_message("workload", arguments.workload, official.workloads))
    return official


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="of the script, as --list shows it")
    parser.add_argument("script", nargs="?", type=Path, help="the file that you fetched")
    parser.add_argument("--workload", help="default: the script's first")
    parser.add_argument("--commit", default="unknown", help="of the repository that the script was fetched from")
    parser.add_argument("--record", type=Path, help="a file that the result is appended to")
    parser.add_argument("--list", action="store_true", help="show every script and where it is published")
    parser.add_argument("--table", type=Path, help="print the table of a file of results")
    add_arguments(parser)
    parser.set_defaults(batch=4, steps=6, warmup=2, blocks=6)
    return parser.parse_args()


if __name__ == "__main__":
    main()
