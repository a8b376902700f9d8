"""A program that makes environments with the quick tool, to be killed and interrupted by tests.

``python making_program.py CACHE REQUIREMENTS VERIFY NAME...``
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bare_tool import HERE, BareTool

from steptime.environments import kinds as table
from steptime.environments.kinds import CachedEnvironment
from steptime.environments.spec import EnvironmentSpec
from steptime.interruption import obeyed


def main(cache: str, requirements: str, verify: str, *names: str) -> int:
    """Make the environments; print what became of each."""
    table.KINDS = {"bare": CachedEnvironment(BareTool())}
    specs = [EnvironmentSpec(name, Path(requirements), [HERE], verify, "bare") for name in names]
    made = table.create_all(specs, lambda name, stage: print(name, stage, flush=True), cache=Path(cache))  # noqa: T201
    for name, result in made.items():
        print(name, "failed" if isinstance(result, Exception) else "ready", flush=True)  # noqa: T201
    return sum(isinstance(result, Exception) for result in made.values())


if __name__ == "__main__":
    with obeyed():
        sys.exit(main(*sys.argv[1:]))
