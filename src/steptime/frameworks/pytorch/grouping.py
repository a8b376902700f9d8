"""Which parts of a network FSDP gathers together."""

# Smaller groups of parameters are gathered together, since a gathering costs its latency whatever its size.
_SMALLEST_GROUP = 1000000


def sharding_groups(module):
    """Return lists of neighbouring children of ``module``, each with parameters enough to be gathered by itself.

    Children are layers or whole blocks. A group starts with a child that has parameters, because what follows without
    any may overwrite its input, which FSDP forbids at the entry of a group. A rest at the end that is too small joins
    the group before it; a network smaller than one group gives none, and is gathered at once by the root.
    """
    groups, current, size = [], [], 0
    for child in module:
        own = sum(parameter.numel() for parameter in child.parameters())
        if own and size >= _SMALLEST_GROUP:
            groups.append(current)
            current, size = [], 0
        current.append(child)
        size += own
    if size >= _SMALLEST_GROUP or not groups:
        groups.append(current)
    else:
        groups[-1] += current
    return groups if len(groups) > 1 else []
