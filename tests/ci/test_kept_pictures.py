"""A picture is drawn once for what it is drawn of, and never has the clip paths of another one."""

import json

from kept_pictures import kept


def drawing(calls):
    """Return a function that draws its specification between two clip paths."""

    def draw(spec, **how):
        calls.append(spec)
        return f'<svg><a id="clip1"/>{json.dumps([spec, how])}<b id="clip2" url="(#clip1)"/></svg>'

    return draw


def test_what_is_drawn_again_is_the_picture_that_was_drawn(tmp_path):
    calls = []
    draw = kept(drawing(calls), tmp_path, "1.0")
    first, second = (draw({"mark": "line"}, vl_version="5") for _ in range(2))

    assert (len(calls), first != second) == (1, True)
    assert [text.count("clip") for text in (first, second)] == [3, 3]
    assert not {word for word in first.split('"') if "clip" in word} & {w for w in second.split('"') if "clip" in w}
    assert '"mark": "line"' in first
    assert len(list(tmp_path.iterdir())) == 1


def test_another_specification_option_or_library_draws_anew(tmp_path):
    calls = []
    kept(drawing(calls), tmp_path, "1.0")({"mark": "line"}, vl_version="5")
    kept(drawing(calls), tmp_path, "1.0")({"mark": "point"}, vl_version="5")
    kept(drawing(calls), tmp_path, "1.0")({"mark": "line"}, vl_version="6")
    kept(drawing(calls), tmp_path, "1.1")({"mark": "line"}, vl_version="5")

    assert len(calls) == 4
