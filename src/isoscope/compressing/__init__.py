"""Fewer dimensions and bits: candidates, their scores on a task, and settings for databases."""
