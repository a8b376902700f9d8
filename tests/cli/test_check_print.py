"""What ``steptime check`` prints of what it found."""

from steptime.cli.frameworks import print_findings
from steptime.runner.extending.files import Finding

RAISED = (
    "AttributeError: 'S' object has no attribute 'netwrok' (adapter.py:48 in backward: self.netwrok.backward(*loss))"
)


def printed(capsys, *details):
    """Return the print of demands with these details as one line."""
    found = [Finding("single", f"demand {number}", ok=not text, detail=text) for number, text in enumerate(details)]
    print_findings("ring", found, launched=True)
    return " ".join(capsys.readouterr().out.split())


def test_an_error_of_several_launches_is_printed_once(capsys):
    text = printed(capsys, f"worker-0: {RAISED} (worker-0 ended with exit code 1)", f"worker-0: {RAISED}", "")

    assert text.count("has no attribute") == 1
    assert "WRONG demand 1: worker-0: AttributeError as above (adapter.py:48)" in text
    assert "(worker-0 ended with exit code 1)" in text


def test_errors_of_different_lines_are_both_printed(capsys):
    text = printed(capsys, RAISED, RAISED.replace(":48", ":52"))

    assert text.count("has no attribute") == 2


def test_a_difference_from_the_reference_is_no_error(capsys):
    words = (
        "the loss is 3.6 instead of 3.7 (allowed: 0.0063 away); the loss is 3.6 instead of 3.7 (allowed: 0.0063 away)"
    )

    assert words in printed(capsys, words)
