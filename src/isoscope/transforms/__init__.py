"""Repairs of a space, as scikit-learn transformers: fitted once, applied to corpus and queries alike."""
