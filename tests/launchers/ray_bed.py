"""A cluster for tests with a real Ray: nodes as those of ``cluster_bed``, a raylet on each."""

import sys
import time

from cluster_bed import HEAD, ClusterBed

_PORT = 6379
_START_S = 120.0
_SESSIONS = "/tmp/ray"  # noqa: S108 - where Ray keeps its own, a disk of each node here
_LEAST = "--object-store-memory=80000000 --disable-usage-stats"
_RAY = f"{sys.executable} -m ray.scripts.scripts start {_LEAST} --block"


class RayBed(ClusterBed):
    """Nodes with a raylet of one processor each, and the node ``head`` with Ray's control service and no processor."""

    @property
    def ray_address(self) -> str:
        """Of the cluster."""
        return f"{self.address(HEAD)}:{_PORT}"

    def up(self) -> None:
        """Make the network, start the raylets, and wait until the control service has all of them."""
        self._write_settings()
        self._make_network()
        own = f"--head --port={_PORT} --num-cpus=0 --include-dashboard=false"
        self._start(HEAD, self._raylet(HEAD, own))
        deadline = time.monotonic() + _START_S
        while self._alive() < 1 and time.monotonic() < deadline:
            time.sleep(0.2)
        for name in self.nodes:
            self._start(name, self._raylet(name, f"--address={self.ray_address} --num-cpus=1"))
        while (count := self._alive()) <= len(self.nodes):
            if time.monotonic() > deadline:
                message = f"{count} nodes of Ray are alive after {_START_S:g} s"
                raise RuntimeError(message)
            time.sleep(0.2)

    def variables(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return the environment of programs that use the bed; a token that a user has would be asked for in it."""
        return super().variables({"RAY_AUTH_MODE": "disabled", **(more or {})})

    def _raylet(self, name: str, options: str) -> str:
        folders = f"mkdir -p {_SESSIONS}; mount -t tmpfs -o mode=1777 sessions {_SESSIONS}"
        return f"{folders}; {_RAY} --node-ip-address={self.address(name)} {options}"

    def _alive(self) -> int:
        """Return how many nodes the control service has."""
        asked = "import sys; from ray._raylet import GcsClient; print(len(GcsClient(sys.argv[1]).get_all_node_info()))"
        done = self.run(sys.executable, "-c", asked, self.ray_address)
        return int(done.stdout) if done.returncode == 0 else 0
