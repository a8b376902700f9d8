"""Stands for the folder of JAX's examples, of which a script imports the data."""
