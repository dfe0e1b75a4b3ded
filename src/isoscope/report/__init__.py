"""What the numbers mean: findings, figures, the page."""
