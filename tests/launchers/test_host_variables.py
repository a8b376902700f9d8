"""The variables that the processes of a launch inherit of their hosts, as they are kept with the launch."""

from steptime.launchers.hosts.launch import variables_in_words


def test_a_value_that_all_hosts_have_is_kept_as_it_is():
    assert variables_in_words(["n0", "n1"], [{"CUDA_HOME": "/opt"}, {"CUDA_HOME": "/opt"}]) == {"CUDA_HOME": "/opt"}


def test_where_hosts_differ_each_value_is_kept_with_its_host():
    found = variables_in_words(["n0", "n1"], [{"CUDA_VISIBLE_DEVICES": ""}, {}])
    assert found == {"CUDA_VISIBLE_DEVICES": "n0: ; n1: not set"}
