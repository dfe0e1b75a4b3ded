"""Trying repairs on the owner's own task: what is tried, on what, and what may be said of it."""
