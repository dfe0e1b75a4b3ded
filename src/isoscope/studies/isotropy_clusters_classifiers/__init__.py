"""A study of "Isotropy, clusters, and classifiers" (Mickus et al., 2024): isotropy falls as classes form clusters."""
