"""Where an actor runs."""

from dataclasses import dataclass


@dataclass
class PlacementGroupSchedulingStrategy:
    """In a bundle of a group."""

    placement_group: object
    placement_group_bundle_index: int
