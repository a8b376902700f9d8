"""What the building of a graph leaves behind in Python."""

import gc


def clear_away(*, for_good=False):
    """Collect what the building of graphs left behind, before any step is timed.

    It is so much that Python's next full collection would take as long as dozens of short steps, some hundred steps
    later. With ``for_good``, what is still alive is not looked at again, where Python can do that (3.7).
    """
    gc.collect()
    if for_good:
        getattr(gc, "freeze", gc.collect)()
