"""Records what ``steptime demo`` shows: a study of four frameworks on this machine, and the profile fitted to it.

    .venv/bin/python benchmarks/demo/record.py FOLDER

On a machine that does nothing else: some ten minutes. A folder that has the results is packed as it is. Names of the
machine and of its folders are replaced, and lines are signed anew.
"""

import io
import json
import lzma
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steptime.cli.demo import RECORDING, STUDY
from steptime.results.jsonlines import CHECKSUM, signed

PROGRAM = [sys.executable, "-m", "steptime"]
KEPT = ("*.json", "*.jsonl", "study.yaml", "trials/*/*.json", "trials/*/*.jsonl")
LEFT_OUT = ("progress.json",)


def measure(folder: Path) -> Path:
    """Run the study and time messages into a folder, where that is not done; return the profile fitted to it."""
    study = Path(__file__).with_name(f"{STUDY}.yaml")
    subprocess.run([*PROGRAM, "run", str(study), "-o", str(folder)], check=True)
    if not (folder / "net.jsonl").exists():
        subprocess.run([*PROGRAM, "net", "gloo", "--workers", "2", "-o", str(folder)], check=True)
    profile = folder.with_suffix(".profile.json")
    subprocess.run([*PROGRAM, "fit", str(folder), "-o", str(profile)], check=True)
    return profile


def without_names(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value without the names of this machine, of its user's folder and of the checkout."""
    if isinstance(value, dict):
        return {without_names(name): without_names(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_names(each) for each in value]
    if not isinstance(value, str):
        return value
    here = {str(Path(__file__).parents[2]): "/steptime", str(Path.home()): "/home/user", socket.gethostname(): "host"}
    for name, other in here.items():
        value = value.replace(name, other)
    return value


def files_of(folder: Path, profile: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of the recording."""
    yield profile.name.replace(folder.name, STUDY), profile.read_bytes()
    for path in sorted({path for pattern in KEPT for path in folder.glob(pattern)}):
        if path.name in LEFT_OUT:
            continue
        data = path.read_bytes()
        if path.suffix == ".jsonl":
            values = [without_names(json.loads(line)) for line in data.splitlines()]
            data = b"".join(signed({key: each for key, each in value.items() if key != CHECKSUM}) for value in values)
        elif path.suffix == ".json":
            data = json.dumps(without_names(json.loads(data)), indent=1, sort_keys=True).encode() + b"\n"
        yield f"{STUDY}/{path.relative_to(folder)}", data


def main(folder: Path) -> None:
    """Measure, and write the recording."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, data in files_of(folder, measure(folder)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_bytes(lzma.compress(whole.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    sys.stdout.write(f"{RECORDING}: {RECORDING.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
