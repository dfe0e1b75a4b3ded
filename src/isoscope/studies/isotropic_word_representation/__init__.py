"""Isotropic word representation in BERT (Rajaee and Sheikhi): a repair of each cluster."""
