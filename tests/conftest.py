"""Hypothesis profiles: a quick one for every run, `--hypothesis-profile=slow` for the long tier.

The quick one draws the same examples every time, so that a failure is of the change that it is seen at. How long a draw
takes is the machine's affair.
"""

import signal

from hypothesis import HealthCheck, settings

anywhere = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", anywhere, max_examples=12, derandomize=True)
settings.register_profile("slow", anywhere, max_examples=10_000)
settings.load_profile("quick")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored by what it starts in the background
