"""Files, lines, tables, JSON, run folders and progress: reading and writing that is not about vectors."""
