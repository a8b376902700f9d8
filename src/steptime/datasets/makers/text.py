"""Make ``text.npz``: bytes of the language reference that ships in Python, topic after topic."""

import json
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

_BYTES = 400_000
"""Fewer than any supported version has, so that there are as many tokens with each."""


def main(folder: str) -> None:
    """Write ``text.npz`` into ``folder``: tokens uint8 (tokens,), which are bytes of UTF-8."""
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    if len(text) < _BYTES:
        sys.exit(f"the topics of this Python have {len(text)} bytes, fewer than {_BYTES}")
    np.savez_compressed(Path(folder, "text.npz"), tokens=np.frombuffer(text[:_BYTES], dtype=np.uint8))


if __name__ == "__main__":
    try:
        main(**json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{error.filename or 'the folder'}: {error.strerror or error}")
