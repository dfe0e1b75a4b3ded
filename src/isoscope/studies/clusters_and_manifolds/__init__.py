"""Cai et al.: the clusters and the manifold of every layer."""
