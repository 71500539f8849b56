"""Serves a checkpoint in a process of its own: python -m tests.runtime.server_process FOLDER [SECONDS_PER_STEP]."""

import sys
import time
from pathlib import Path
from typing import Any

import torch

from tests.runtime.support import FaultyAdapter, load_engine
from vllm_probe.runtime.server.app import ServerOptions, serve


class SlowAdapter(FaultyAdapter):
    """A CPU that takes its time."""

    delay_s = 0.0

    def attention(self, *tensors: Any, **options: Any) -> torch.Tensor:
        time.sleep(self.delay_s)
        return super().attention(*tensors, **options)


def main() -> int:
    adapter = SlowAdapter()
    engine = load_engine(Path(sys.argv[1]), adapter, max_num_batched_tokens=256)
    adapter.delay_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    options = ServerOptions(port=0, served_model_names=("tiny", "alias"))
    code = serve(engine, options, on_ready=lambda url, _: print(url, flush=True))  # noqa: T201
    engine.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
