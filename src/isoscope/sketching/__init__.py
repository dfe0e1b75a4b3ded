"""Sketches: sums over rows, computed in one pass, from which a dataset of any size is measured."""
