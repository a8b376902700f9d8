"""The counters that Linux keeps in files; every reader returns None, or an empty mapping, where there are none."""

import os
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_PROCESSOR_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_SYS_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def processor_seconds() -> dict[str, float]:
    """Seconds since boot that all cores spent, by purpose."""
    line = _text(Path("/proc/stat")).partition("\n")[0].split()
    if not line or line[0] != "cpu":
        return {}
    # Time of guests is counted in user and nice already, so the two fields behind steal are left out.
    return dict(zip(_PROCESSOR_FIELDS, (int(ticks) / _TICKS for ticks in line[1:9]), strict=False))


def load_averages() -> tuple[tuple[float, float, float] | None, float | None]:
    """The load over 1, 5 and 15 minutes, and how many tasks want to run now (this process not counted)."""
    words = _text(Path("/proc/loadavg")).split()
    try:
        loads = (float(words[0]), float(words[1]), float(words[2]))
        return loads, max(0.0, float(words[3].partition("/")[0]) - 1.0)
    except (IndexError, ValueError):
        return None, None


def meminfo() -> dict[str, float]:
    """Bytes by the names that /proc/meminfo gives."""
    found = {}
    for line in _text(Path("/proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":  # noqa: PLR2004 - a number and its unit
            found[name] = float(words[0]) * 1024.0
    return found


def swapped_in_pages() -> float | None:
    """Pages read back from swap since boot."""
    return _named(_text(Path("/proc/vmstat")), "pswpin")


def pressure_s() -> float | None:
    """Seconds since boot in which some task waited for a core."""
    for line in _text(Path("/proc/pressure/cpu")).splitlines():
        if line.startswith("some "):
            return float(line.rpartition("total=")[2]) * 1e-6
    return None


def cgroup_throttled_s() -> float | None:
    """Seconds in which the quota of this process's container held it back."""
    own = {}
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        own[controllers] = group.lstrip("/")
    places = [
        (_CGROUP / own.get("", "") / "cpu.stat", "throttled_usec", 1e-6),
        (_CGROUP / "cpu.stat", "throttled_usec", 1e-6),
        (_CGROUP / "cpu" / own.get("cpu", own.get("cpu,cpuacct", "")) / "cpu.stat", "throttled_time", 1e-9),
        (_CGROUP / "cpu" / "cpu.stat", "throttled_time", 1e-9),
    ]
    for path, name, unit in places:
        value = _named(_text(path), name)
        if value is not None:
            return value * unit
    return None


def thermal_throttles() -> float | None:
    """How often since boot the processor slowed itself because of heat, over all cores."""
    counts = [_text(path) for path in _SYS_CPU.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    numbers = [float(count) for count in counts if count.strip().isdecimal()]
    return sum(numbers) if numbers else None


def cpu_hz() -> float | None:
    """The mean frequency of the cores at this moment, as far as the kernel reports it."""
    frequencies = []
    for path in _SYS_CPU.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        text = _text(path).strip()
        if text.isdecimal():
            frequencies.append(float(text) * 1e3)
    if not frequencies:
        lines = _text(Path("/proc/cpuinfo")).splitlines()
        frequencies = [float(line.partition(":")[2]) * 1e6 for line in lines if line.startswith("cpu MHz")]
    return sum(frequencies) / len(frequencies) if frequencies else None


def network_bytes() -> dict[str, float]:
    """Bytes in and out since boot of the loopback and of all other interfaces, and packets dropped."""
    try:
        counters = psutil.net_io_counters(pernic=True)
    except (OSError, RuntimeError, psutil.Error):
        return {}
    moved = {name: float(each.bytes_recv + each.bytes_sent) for name, each in counters.items()}
    return {
        "loopback": moved.get("lo", 0.0),
        "interfaces": sum(count for name, count in moved.items() if name != "lo"),
        "dropped": float(sum(each.dropin + each.dropout for each in counters.values())),
    }


def retransmits() -> float | None:
    """TCP segments sent again since boot."""
    rows = [line.split() for line in _text(Path("/proc/net/snmp")).splitlines() if line.startswith("Tcp:")]
    try:
        return float(rows[1][rows[0].index("RetransSegs")])
    except (IndexError, ValueError):
        return None


def _named(text: str, name: str) -> float | None:
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name:  # noqa: PLR2004 - a name and its number
            return float(words[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
