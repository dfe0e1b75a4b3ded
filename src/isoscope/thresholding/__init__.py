"""Which cosine means a match: thresholds with guarantees, the tail of random pairs, and the registry of models."""
