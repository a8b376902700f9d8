"""Frameworks and workloads of other packages: written from a template, and checked by their files and launches."""
