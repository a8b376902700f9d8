"""A stand-in for a framework: it exchanges bytes with a server and computes next to nothing."""
