"""Read and write vectors in databases: PostgreSQL, Qdrant, LanceDB and Chroma."""
