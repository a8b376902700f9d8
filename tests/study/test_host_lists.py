"""Lists of hosts in the notation of Slurm and pdsh."""

import pytest

from steptime.study.host_lists import MOST_HOSTS, expanded_hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n0", ["n0"]),
        ("user@n0.site", ["user@n0.site"]),
        ("n[0-2,7]", ["n0", "n1", "n2", "n7"]),
        ("n[008-010]", ["n008", "n009", "n010"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[0-1]-ib", ["n0-ib", "n1-ib"]),
        ("r[1-2]n[0,4]", ["r1n0", "r1n4", "r2n0", "r2n4"]),
        ("a[0-1],b,c[3]", ["a0", "a1", "b", "c3"]),
    ],
)
def test_a_list_stands_for_these_names(text, names):
    assert expanded_hosts(text) == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n[0-3", "its brackets do not match"),
        ("n0-3]", "its brackets do not match"),
        ("n[[0-3]]", "its brackets do not match"),
        ("n[]", "'' is not a number and no range of numbers"),
        ("n[a-c]", "'a-c' is not a number and no range of numbers"),
        ("n[3-1]", "the range '3-1' ends before it begins"),
        ("n[0-1023],m", "it names 1025 hosts, and a study has at most 1024"),
        ("n[0-99999]m[0-99999]", "it names 10000000000 hosts"),
    ],
)
def test_what_is_no_list_is_refused_with_the_text_and_the_reason(text, reason):
    with pytest.raises(ValueError, match="is not a list of hosts") as caught:
        expanded_hosts(text)
    assert str(caught.value).startswith(repr(text))
    assert reason in str(caught.value)


def test_a_list_of_as_many_hosts_as_a_study_has_at_most_is_taken():
    assert len(expanded_hosts(f"n[1-{MOST_HOSTS}]")) == MOST_HOSTS
