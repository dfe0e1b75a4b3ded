"""The audit: measurements of a store in at most two passes, with their uncertainty, verdicts and advice."""
