"""Embed texts with a model; its hidden states become the rows of a store."""
