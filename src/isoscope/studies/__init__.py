"""The five papers as protocols that can be run, with their published numbers beside ours."""
