"""Protocols of five papers on isotropy, which compare published numbers with ours."""
