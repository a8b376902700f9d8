"""The hosts of a real cluster, as the probe found them."""

from steptime.catalog.found_site import FoundHost, Site


def test_clocks_are_looked_up_by_the_name_that_a_host_gives_itself():
    reached = (FoundHost("n0.site", own_name="n0"), FoundHost("user@10.0.0.2", own_name="n1", clock_offset_s=300.0))
    assert Site(reached, "ssh", "the study").clock_offsets_s == {"n0": 0.0, "n1": 300.0}
