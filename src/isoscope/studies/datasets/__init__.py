"""Datasets for studies: classification tasks, sentence pairs, running text and word classes."""
