"""The half of steptime that runs inside a framework's environment (Python 3.6+, standard library and numpy)."""
