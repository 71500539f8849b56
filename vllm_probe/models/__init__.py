"""Model files and names to `ModelSpec`: headers only, bounded reads, no code of the model."""
