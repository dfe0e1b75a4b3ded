"""Rajaee and Sheikhi, Rajaee and Pilehvar: a repair cluster by cluster."""
