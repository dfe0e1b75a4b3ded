"""Code that all measurements share: arrays, formulas, compiled kernels, threads and memory limits."""
