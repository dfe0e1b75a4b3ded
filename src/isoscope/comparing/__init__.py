"""Compare two sets of vectors, and decide whether they come from the same space."""
