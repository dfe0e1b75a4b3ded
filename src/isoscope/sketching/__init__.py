"""Sketches: sums over rows, computed in one pass, from which a data set of any size is measured."""
