"""Renderers of results as pages, terminal tables and figures."""
