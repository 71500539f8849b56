"""Hypothesis profiles: a quick one for every run, `--hypothesis-profile=slow` for the long tier."""

from hypothesis import settings

settings.register_profile("quick", max_examples=12, deadline=None, print_blob=True)
settings.register_profile("slow", max_examples=10_000, deadline=None, print_blob=True)
settings.load_profile("quick")
