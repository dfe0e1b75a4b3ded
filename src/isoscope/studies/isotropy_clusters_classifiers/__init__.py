"""Mickus et al.: isotropy falls as classes become clusters."""
