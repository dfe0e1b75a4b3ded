"""Arrays, formulas, compiled kernels, threads and memory: what every measurement is made of."""
