"""Texts through a model: its hidden states as a store."""
