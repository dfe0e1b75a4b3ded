"""A study of "Isotropy in the contextual embedding space: clusters and manifolds" (Cai et al., 2021)."""
