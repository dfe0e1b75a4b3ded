"""Input and output other than vectors: files, text lines, tables, JSON, run folders and progress."""
