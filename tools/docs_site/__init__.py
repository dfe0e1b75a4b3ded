"""Build the documentation site from docs/ and from the code: `python -m tools.docs_site`, or `make docs`."""
