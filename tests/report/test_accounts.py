"""What frameworks say of their steps, in reports."""

import re

import pytest
from ablations import ACCOUNTS, breakdown, launch_phases
from summaries import summary, trial
from test_breakdown_text import one
from test_page import drawn_page, page


def test_the_terminal_says_where_a_framework_and_the_ablation_differ():
    said = one(accounts=ACCOUNTS)
    assert (
        "DDP log and ablation differ in backward, by 6.00 ms (5.00 to 7.00) and exposed comm. + sync wait, by" in said
    )


@pytest.mark.parametrize("accounts", [[], [ACCOUNTS[0]], ACCOUNTS[3:]], ids=["none", "agreeing", "not shown"])
def test_the_terminal_says_nothing_where_nothing_was_shown_to_differ(accounts):
    assert "ablation differ" not in one(accounts=accounts)


@pytest.mark.parametrize(
    ("phase", "verdict"),
    [
        ("forward", "agrees"),
        ("backward", "differs"),
        ("exposed comm\\. \\+ sync wait", "differs"),
        ("update", "-"),
        ("input wait", "not shown"),
    ],
)
def test_the_page_has_a_line_and_a_verdict_for_each_account(phase, verdict):
    assert re.search(
        rf"<td[^>]*>{phase}</td>\n?(<td class=\"number\"[^>]*>.*</td>\s*){{3}}<td[^>]*>{verdict}</td>",
        drawn_page(launch_phases),
    )


def test_the_page_has_both_numbers_with_their_intervals():
    both = r"26\.0 ms <small>23\.4 to 28\.6</small>.*20\.0 ms <small>18\.0 to 22\.0</small>"
    assert re.search(both, drawn_page(launch_phases), re.DOTALL)


def test_the_page_has_no_empty_table_of_accounts():
    assert "compared with the ablation" not in page(summary([trial(breakdown=breakdown())]))


def test_the_page_explains_accounts_once():
    assert drawn_page(launch_phases).count("own timers and marks time the same part") == 1
