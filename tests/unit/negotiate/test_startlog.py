"""Start-up logs of vLLM as releases from 0.6 on write them, and logs that nobody wrote."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_probe.negotiate.startlog import MAX_LOG_BYTES, StartLog, parse_log

NEW = """\
(APIServer pid=1) INFO 04-20 10:00:00 [utils.py:299] vLLM API server version 0.19.0
(APIServer pid=1) INFO 04-20 10:00:00 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', \
'max_model_len': 8192, 'gpu_memory_utilization': 0.95, 'max_num_seqs': 512}
(EngineCore pid=9) INFO 04-20 10:00:05 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: \
model='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, \
quantization=None, enforce_eager=True, kv_cache_dtype=fp8_e4m3
\x1b[36m(Worker_TP0 pid=9)\x1b[0;0m INFO 04-20 10:00:30 [run.py:1] Model loading took 7.64 GiB memory and 12.5 seconds
(Worker_TP1 pid=8) INFO 04-20 10:00:30 [runner.py:1] Model loading took 7.66 GiB memory and 12.4 seconds
(Worker_TP0 pid=9) INFO 04-20 10:01:00 [gpu_worker.py:423] Available KV cache memory: 63.84 GiB
(Worker_TP1 pid=8) INFO 04-20 10:01:00 [gpu_worker.py:423] Available KV cache memory: 63.80 GiB
(EngineCore pid=9) INFO 04-20 10:01:00 [kv_cache_utils.py:1316] GPU KV cache size: 418,688 tokens
(EngineCore pid=9) INFO 04-20 10:01:00 [kv_cache_utils.py:1321] Maximum concurrency for 8,192 tokens per request: 51.11x
(Worker_TP0 pid=9) INFO 04-20 10:01:20 [runner.py:2] Graph capturing finished in 10 secs, took 0.96 GiB
"""
OLD = """\
INFO 11-22 07:19:00 api_server.py:528] vLLM API server version 0.6.3.post1
INFO 11-22 07:19:10 engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='m', max_seq_len=8192
INFO 11-22 07:19:26 model_runner.py:1067] Loading model weights took 14.9595 GB
INFO 11-22 07:19:30 gpu_executor.py:122] # GPU blocks: 5691, # CPU blocks: 2048
INFO 11-22 07:19:30 gpu_executor.py:126] Maximum concurrency for 8192 tokens per request: 11.12x
"""
PROFILED = (
    "INFO 01-16 09:40:00 worker.py:238] the current vLLM instance can use total_gpu_memory (79.22GiB) x "
    "gpu_memory_utilization (0.90) = 71.29GiB\n"
    "INFO 01-16 09:40:00 worker.py:238] model weights take 19.86GiB; non_torch_memory takes 0.16GiB; PyTorch "
    "activation peak memory takes 36.63GiB; the rest of the memory reserved for KV Cache is 14.65GiB.\n"
    "INFO 01-16 09:40:00 executor_base.py:95] # CUDA blocks: 6001, # CPU blocks: 1638\n"
)


def values(log: StartLog) -> dict[str, Any]:
    return {name: figure.value for name, figure in log.figures.items()}


def test_a_start_of_the_present_engine_is_read_with_its_options() -> None:
    found = parse_log(NEW)
    assert (found.version, found.model, found.outcome) == ("0.19.0", "Qwen/Qwen3-8B", "boots")
    assert found.options == {
        "max_model_len": 8192, "gpu_memory_utilization": 0.95, "max_num_seqs": 512, "dtype": "bfloat16",
        "tensor_parallel_size": 2, "pipeline_parallel_size": 1, "enforce_eager": True, "kv_cache_dtype": "fp8_e4m3",
    }  # fmt: skip
    assert values(found) == {
        "weights_gib": 7.66, "kv_gib": 63.80, "tokens": 418_688, "concurrency": 51.11, "graph_gib": 0.96,
    }  # fmt: skip
    assert found.figures["kv_gib"].line == 7


def test_the_first_engine_logged_blocks_and_called_gib_gb() -> None:
    found = parse_log(OLD)
    assert found.version == "0.6.3.post1"
    assert values(found) == {"weights_gib": 14.9595, "blocks": 5691, "concurrency": 11.12}
    assert found.options["max_model_len"] == 8192


def test_a_profile_of_january_2025_is_read_whole() -> None:
    assert values(parse_log(PROFILED)) == {
        "total_gib": 79.22, "weights_gib": 19.86, "non_torch_gib": 0.16, "activation_gib": 36.63, "kv_gib": 14.65,
        "blocks": 6001,
    }  # fmt: skip
    assert parse_log(PROFILED).options == {"gpu_memory_utilization": 0.9}


@pytest.mark.parametrize(
    ("line", "outcome", "figures"),
    [
        (
            (
                "ValueError: To serve at least one request with the models's max seq len (32000), (7.81 GiB KV cache "
                "is needed, which is larger than the available KV cache memory (4.45 GiB). Based on the available "
                "memory, the estimated maximum model length is 18224."
            ),
            "kv_too_small",
            {"kv_needed_gib": 7.81, "kv_gib": 4.45, "estimated_max_model_len": 18224},
        ),
        (
            (
                "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be "
                "stored in KV cache (26064). Try increasing `gpu_memory_utilization`"
            ),
            "kv_too_small",
            {"tokens": 26064},
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing", "oom", {}),
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 784.00 MiB. GPU 0 has a total capacity "
                "of 31.36 GiB of which 500.00 MiB is free."
            ),
            "oom",
            {"total_gib": 31.36},
        ),
        (
            (
                "ValueError: Free memory on device (60.1/79.19 GiB) on startup is less than desired GPU memory "
                "utilization (0.95, 75.23 GiB)."
            ),
            "busy",
            {"total_gib": 79.19},
        ),
    ],
)
def test_a_failure_says_what_was_lacking(line: str, outcome: str, figures: dict[str, Any]) -> None:
    found = parse_log(f"INFO vLLM API server version 0.19.0\nINFO Available KV cache memory: 99 GiB\n{line}\n")
    assert found.outcome == outcome
    assert {name: value for name, value in values(found).items() if value != 99} == figures


def test_the_summary_of_recent_releases_names_every_part() -> None:
    line = (
        "Free memory on device (78.6/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). "
        "Actual usage is 15.27 GiB for weight, 2.21 GiB for peak activation, 0.25 GiB for non-torch memory, and "
        "0.96 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1`"
    )
    found = parse_log(line)
    assert values(found) == {
        "total_gib": 79.19, "weights_gib": 15.27, "activation_gib": 2.21, "non_torch_gib": 0.25, "graph_gib": 0.96,
    }  # fmt: skip
    assert found.options == {"gpu_memory_utilization": 0.95}


def test_the_last_of_several_starts_counts() -> None:
    found = parse_log(OLD + NEW)
    assert found.version == "0.19.0"
    assert "blocks" not in found.figures
    assert found.figures["kv_gib"].line == 12


def test_a_text_of_something_else_is_empty() -> None:
    assert parse_log("Hello, world\nGET /health 200\n").is_empty
    assert parse_log("").is_empty


@given(st.text() | st.lists(st.sampled_from(NEW.splitlines() + OLD.splitlines())).map("\n".join))
def test_no_text_is_too_strange(text: str) -> None:
    found = parse_log(text)
    assert found.outcome in ("boots", "kv_too_small", "oom", "busy", "unknown")
    assert all(figure.line >= 1 for figure in found.figures.values())


@pytest.mark.parametrize(
    "line",
    [
        "GiB " * 4000,
        "Model loading took " + "9" * 10_000,
        "(" * 10_000 + "GiB",
        "GPU KV cache size: " + "1," * 9000,
        "model='" * 2500,
        "non_torch_memory" + " " * 9000 + "GiB",
    ],
)
def test_a_hostile_line_costs_no_more_than_its_length(line: str) -> None:
    found = parse_log((line + "\n") * (MAX_LOG_BYTES // (len(line) + 1) // 16))
    assert found.outcome in ("boots", "unknown")


@given(st.integers(0, 10**12), st.integers(0, 10**6))
@settings(max_examples=50)
def test_every_count_is_read_back(tokens: int, part: int) -> None:
    found = parse_log(f"GPU KV cache size: {tokens:,} tokens\nAvailable KV cache memory: {part / 100:.2f} GiB")
    assert found.figures["tokens"].value == tokens
    assert found.figures["kv_gib"].value == pytest.approx(part / 100)


def test_what_is_left_for_a_cache_may_be_less_than_nothing_and_a_capacity_may_not() -> None:
    found = parse_log("Available KV cache memory: -1.44 GiB\ntotal_gpu_memory (-1GiB) x gpu_memory_utilization (0.90)")
    assert values(found) == {"kv_gib": -1.44}


def test_a_banner_begins_a_start_of_recent_releases_and_debug_lines_say_the_batch() -> None:
    found = parse_log(
        OLD
        + """\
(APIServer pid=1) INFO 04-22 00:21:00 [entrypoints/utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.19.0
(APIServer pid=1) DEBUG 04-22 00:21:01 [engine/arg_utils.py:2232] Defaulting max_num_batched_tokens to 8192 for OPENAI
(APIServer pid=1) DEBUG 04-22 00:21:01 [engine/arg_utils.py:2242] Defaulting max_num_seqs to 1024 for OPENAI_API_SERVER
(EngineCore pid=2) DEBUG 04-22 00:21:13 [worker.py:1] snapshot: torch_peak=0.0GiB, free_memory=78.68GiB, \
total_memory=79.19GiB, cuda_memory=0.51GiB, torch_memory=0.0GiB, non_torch_memory=0.51GiB
(EngineCore pid=2) INFO 04-22 00:21:14 [core.py:829] Overriding num_gpu_blocks=0 with num_gpu_blocks_override=1024
(EngineCore pid=2) INFO 04-22 00:21:16 [runner.py:5955] Estimated CUDA graph memory: 0.81 GiB total
(EngineCore pid=2) DEBUG 04-22 00:21:16 [worker.py:435] Memory profiling takes 21.74 seconds. Total non KV cache \
memory: 10.6GiB; torch peak memory increase: 2.21GiB; non-torch forward increase memory: 0.25GiB; weights memory: \
8.14GiB.
(APIServer pid=1) DEBUG 04-22 00:21:46 [loggers.py:273] vllm cache_config_info after num_gpu_blocks is: 75642
"""
    )
    assert found.version == "0.19.0"
    assert found.options == {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
    assert values(found) == {
        "total_gib": 79.19, "graph_estimate_gib": 0.81, "activation_gib": 2.21, "non_torch_gib": 0.25,
        "weights_gib": 8.14, "blocks": 75642,
    }  # fmt: skip


def test_the_profile_table_of_0_6_4_is_read_line_by_line() -> None:
    found = parse_log(
        "worker.py:243] Memory profiling results:\nworker.py:243] total_gpu_memory     79.22GiB\n"
        "worker.py:243] gpu_memory_utilization       0.90\nworker.py:243] model weights take   14.96GiB\n"
        "worker.py:243] non_torch_memory     1.79GiB\nworker.py:243] PyTorch activation peak memory       1.26GiB\n"
        "worker.py:243] available_kv_cache_memory    53.29GiB\n"
    )
    assert found.options == {"gpu_memory_utilization": 0.9}
    assert values(found) == {
        "total_gib": 79.22, "weights_gib": 14.96, "non_torch_gib": 1.79, "activation_gib": 1.26, "kv_gib": 53.29,
    }  # fmt: skip


ONE_LINE = """\
INFO 11-20 07:00:00 api_server.py:585] vLLM API server version 0.6.4.post1
INFO 11-20 07:00:40 model_runner.py:1077] Loading model weights took 14.9888 GB
INFO 11-20 07:00:42 worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB \
peak_torch_memory=17.06GiB memory_usage_post_profile=15.35Gib non_torch_memory=0.35GiB kv_cache_size=3.81GiB \
gpu_memory_utilization=0.90
"""


def test_the_profile_of_0_6_4_is_read_from_its_one_line() -> None:
    """github.com/vllm-project/vllm/issues/10517; the peak is that of weights and activation."""
    found = parse_log(ONE_LINE)
    values = {name: round(figure.value, 4) for name, figure in found.figures.items()}
    assert values == {
        "weights_gib": 14.9888, "peak_gib": 17.06, "activation_gib": 2.0712, "non_torch_gib": 0.35, "kv_gib": 3.81,
        "total_gib": 23.58,
    }  # fmt: skip
    assert found.figures["activation_gib"].line == 3
    assert (found.outcome, found.options["gpu_memory_utilization"]) == ("boots", 0.9)
    assert parse_log(ONE_LINE.replace("=3.81", "=-2.14")).figures["kv_gib"].value == -2.14


@pytest.mark.parametrize(
    ("line", "platform"),
    [
        ("INFO 11-02 10:11:00 [__init__.py:216] Automatically detected platform rocm.", "rocm"),
        ("INFO 07-12 15:37:28 [__init__.py:36] Platform plugin ascend is activated", "ascend"),
        ("with config: model='m', device_config=cpu, seed=0", "device_config=cpu"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "hip"),
        ("INFO [__init__.py:1] No platform detected, vLLM is running on UnspecifiedPlatform", None),
    ],
)
def test_the_platform_is_read_from_whichever_line_tells_it(line: str, platform: str | None) -> None:
    assert parse_log(f"{line}\nINFO vLLM API server version 0.19.0\n").platform == platform


def test_a_failure_states_the_length_and_the_share_that_were_asked_for() -> None:
    too_long = "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed"
    busy = "Free memory on device cuda:0 (14.5/23.6 GiB) on startup is less than desired GPU memory utilization (0.9, 2"
    assert parse_log(too_long).options == {"max_model_len": 131072}
    assert parse_log(busy).options == {"gpu_memory_utilization": 0.9}
    assert parse_log("INFO [model.py:1510] Using max model len 40960").options == {"max_model_len": 40960}


def test_a_list_of_what_was_asked_for_says_that_the_rest_had_its_default() -> None:
    assert parse_log(NEW).lists_options
    assert parse_log("INFO api_server.py:529] args: Namespace(host=None, model='m')").lists_options
    assert not parse_log(OLD).lists_options


def test_the_last_words_of_a_failure_alone_are_nothing_to_compare() -> None:
    words = "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 23.65 GiB of which 1 MiB is free"
    assert parse_log(words).is_empty
    assert not parse_log(f"INFO vLLM API server version 0.19.0\n{words}").is_empty
