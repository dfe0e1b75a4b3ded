"""The sketch: sums over rows that measure a data set of any size in one pass."""
