"""Results as pages, terminal tables and figures."""
