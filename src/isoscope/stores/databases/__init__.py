"""Read and write vectors in databases: PostgreSQL, Qdrant, LanceDB, Chroma, Milvus Lite and DuckDB."""
