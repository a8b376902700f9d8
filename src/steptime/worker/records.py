"""Writing what a process saw, one JSON object per line, into its own file of the run folder."""

import json
import os


class RecordFile(object):
    """An append-only JSON Lines file; every line is flushed, so that a death loses nothing already written."""

    def __init__(self, path):
        self._file = open(path, "a")

    def write(self, kind, **fields):
        """Append one record; ``kind`` names what it is, ``fields`` must be JSON-ready."""
        fields["kind"] = kind
        self._file.write(json.dumps(fields, sort_keys=True) + "\n")
        self._file.flush()

    def close(self):
        """Close the file after making sure that it is on the disk."""
        os.fsync(self._file.fileno())
        self._file.close()
