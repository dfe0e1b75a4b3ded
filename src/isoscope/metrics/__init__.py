"""A pure function for each measurement."""
