"""The lines to the hosts of a launch end with the launch, whatever ends it."""

from pathlib import Path

import pytest

from living_processes import living_children
from steptime.errors import StoreError
from steptime.launchers.hosts.connections import Lines


def test_a_line_that_cannot_be_kept_a_file_for_ends_the_lines_before_it(tmp_path: Path):
    waits = ["sleep", "6001"]
    commands = {"host-n0": waits, "host-n1": waits}
    (tmp_path / "host-n1.launch").mkdir()
    with pytest.raises((OSError, StoreError)):
        Lines(commands, ["n0", "n1"], tmp_path)
    assert waits not in [each.cmdline() for each in living_children()]
