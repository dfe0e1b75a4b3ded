"""Embedding of texts with a model, whose hidden states become a store."""
