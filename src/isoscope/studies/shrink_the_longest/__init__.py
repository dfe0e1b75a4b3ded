"""A study of "Shrink the longest" (Kudrjashov et al., 2025): persistent entropy as a regularizer."""
