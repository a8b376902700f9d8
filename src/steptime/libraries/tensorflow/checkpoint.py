"""Variables as numpy arrays and back, of every replica that a process computes for."""


def read_variables(variables):
    """Return ``{NAME/REPLICA: array}`` of ``{name: variable}``."""
    return {
        "%s/%d" % (name, replica): part.numpy()
        for name, variable in variables.items()
        for replica, part in enumerate(_parts(variable))
    }


def set_variables(variables, arrays):
    """Give variables the values that ``read_variables`` returned."""
    for name, variable in variables.items():
        for replica, part in enumerate(_parts(variable)):
            part.assign(arrays["%s/%d" % (name, replica)])


def _parts(variable):
    """Return the variables that a strategy's variable consists of in this process; of another, itself."""
    return getattr(variable, "values", None) or (variable,)
