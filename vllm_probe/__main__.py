"""`python -m vllm_probe` is the same as `vllm-probe`."""

import sys

from vllm_probe.cli.main import main

sys.exit(main())
