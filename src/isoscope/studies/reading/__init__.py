"""Readers of plain-text files."""
