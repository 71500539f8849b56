"""Which prompts run together and when (no torch)."""
