"""Vectors in databases: PostgreSQL, Qdrant, LanceDB and Chroma, read page by page and written by id."""
