"""The framework: this folder is copied into every run folder as steptime/frameworks/numpy_ring."""
