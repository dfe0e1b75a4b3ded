"""The command `isoscope`."""
