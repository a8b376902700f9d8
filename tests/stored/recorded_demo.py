"""Makes what ``steptime demo`` shows: the stored study four-frameworks with today's names, and its profile.

Run from the root of the repository after a name or the fit has changed:

    .venv/bin/python tests/stored/recorded_demo.py
"""

import io
import lzma
import re
import sys
import tarfile
import tempfile
from pathlib import Path

from renamed import KEYS
from stored_studies import unpacked

from steptime.cli.report import RECORDING, STUDY


def demo_files() -> dict[str, bytes]:
    """Return the files of the demo by their names: a results folder, and beside it its profile."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        folder = unpacked(STUDY, root)
        files = {f"{STUDY}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*.*")}
        files[f"{STUDY}.profile.json"] = folder.with_name("study.profile.json").read_bytes()
    # The stored text is kept as it was written; here it is a study that today's program takes.
    text = files[f"{STUDY}/study.yaml"].decode()
    renamed = re.sub(r"^\w+(?=:)", lambda key: KEYS.get(key[0], key[0]), text, flags=re.MULTILINE)
    files[f"{STUDY}/study.yaml"] = renamed.encode()
    return dict(sorted(files.items()))


def main() -> int:
    """Write the recording; return the exit code."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, data in demo_files().items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_bytes(lzma.compress(whole.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return 0


if __name__ == "__main__":
    sys.exit(main())
