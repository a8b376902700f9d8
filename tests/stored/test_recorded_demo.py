"""What ``steptime demo`` shows was measured: it is the stored study, and what the fit makes of it."""

from golden import rounded
from recorded_demo import demo_files

from steptime.cli.report import recorded_files

MAKE = "make it anew: .venv/bin/python tests/stored/recorded_demo.py"


def test_the_demo_is_the_stored_study_with_todays_names_and_its_profile():
    made, shipped = demo_files(), recorded_files()

    assert shipped.keys() == made.keys(), MAKE
    different = [name for name, data in made.items() if rounded(data.decode()) != rounded(shipped[name].decode())]
    assert different == [], MAKE
