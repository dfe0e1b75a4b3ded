"""Which cosine means a match: cuts with guarantees, the tail of random pairs, and the registry of models."""
