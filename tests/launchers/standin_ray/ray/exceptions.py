"""The errors of Ray."""


class RayError(Exception):
    """Whatever happens to an actor."""
