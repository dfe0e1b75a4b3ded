"""Kudrjashov et al.: the persistent entropy of each class as a regulariser."""
