"""A checked study on two nodes of Slurm whose steps pyxis puts into containers, with and without a killed controller.

    .venv/bin/python benchmarks/hosts/pyxis_study.py FOLDER PLUGIN PROGRAMS IMAGE

PLUGIN is pyxis' ``spank_pyxis.so``, built for the Slurm that is installed, PROGRAMS the folder with ``enroot``, whose
settings give each node a data folder of its own (``$(uname -n)``), IMAGE a squashfs file, of empty folders alone: what
the study needs is mounted. Needs root, and what tests of hosts need. Prints how the study ended, its launches with
their hosts and its checks, then what runs on the nodes half a minute after the controller was killed, at most.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "launchers"))
from cluster_bed import HEAD, ClusterBed

from steptime.results.store import Store

STUDY = """\
workloads: lenet5
frameworks: [reference, pytorch]
strategies: [single, allreduce]
workers: [1, 2]
device: cpu
launcher: slurm
loaders: synthetic
launches: {min: 2, max: 2}
seconds_per_launch: 1
"""
LIMIT_S = 900.0


class PyxisBed(ClusterBed):
    """Two nodes whose Slurm has the plug-in."""

    def __init__(self, plugin: str, programs: str) -> None:
        super().__init__(2)
        self._plugin, self._programs = plugin, programs

    def variables(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return the environment of programs that use the bed, in which enroot is found."""
        known = super().variables(more)
        return {**known, "PATH": f"{self._programs}:{known['PATH']}"}

    def _write_settings(self) -> None:
        super()._write_settings()
        (self.folder / "pyxis").mkdir()
        settings = f"runtime_path={self.folder}/pyxis container_scope=global sbatch_support=0"
        (self.folder / "plugstack.conf").write_text(f"required {self._plugin} {settings}\n")
        with (self.folder / "slurm.conf").open("a") as file:
            file.write(f"PlugStackConfig={self.folder}/plugstack.conf\n")


def started(bed: PyxisBed, folder: Path, name: str, image: str) -> subprocess.Popen[bytes]:
    """Start the study in an allocation of both nodes, in containers that show the folders of this machine."""
    shared = ["/usr", str(Path(sys.executable).parents[2]), str(Path.home()), str(folder), str(bed.folder)]
    mounts = ",".join(f"{path}:{path}" for path in shared)
    containers = {"PYXIS_CONTAINER_IMAGE": image, "PYXIS_CONTAINER_MOUNTS": mounts}
    (folder / "race.yaml").write_text(STUDY)
    study = [sys.executable, "-P", "-m", "steptime", "run", str(folder / "race.yaml"), "-o", str(folder / name)]
    command = bed.command(HEAD, ["salloc", "-N", "2", "--exclusive", "--quiet", *study])
    with (folder / f"{name}.txt").open("w") as said:
        return subprocess.Popen(command, stdout=said, stderr=said, env=bed.variables(containers))


def kill_controller(results: Path) -> None:
    """Kill steptime on the head once the second worker writes records."""
    while not any(path.stat().st_size for path in results.rglob("worker-1.jsonl")):
        time.sleep(0.1)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if str(results).encode() in words and b"salloc" not in words:
            os.kill(int(path.parent.name), signal.SIGKILL)


def main() -> None:
    """Run both, and print what became of them."""
    folder, plugin, programs, image = Path(sys.argv[1]).resolve(), *sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    bed = PyxisBed(plugin, programs)
    try:
        bed.up()
        code = started(bed, folder, "results", image).wait(LIMIT_S)
        print("ended with", code)
        store = Store.open(folder / "results")
        for trial in store.trials():
            for launch in store.launches(trial.id):
                hosts = sorted({worker.host for worker in launch.workers})
                print(trial.framework, trial.strategy, trial.workers, launch.status, *hosts)
        print("checks passed:", [check.passed for check in store.equivalence()])
        killed = started(bed, folder, "killed", image)
        kill_controller(folder / "killed")
        killed.wait(LIMIT_S)
        deadline = time.monotonic() + 30.0
        while (left := [bed.processes(node) for node in bed.nodes]) != [[], []] and time.monotonic() < deadline:
            time.sleep(0.2)
        print("left of a killed study:", left)
    finally:
        bed.down()


if __name__ == "__main__":
    main()
