"""A study of "Isotropic word representation in BERT" (Rajaee and Sheikhi), which repairs each cluster."""
