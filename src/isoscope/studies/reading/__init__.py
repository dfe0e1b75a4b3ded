"""Functions that read plain text files."""
