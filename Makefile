# Two commands set everything up on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := runs/demo
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export GRADIO_ANALYTICS_ENABLED ?= False

.PHONY: demo test check clean

$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/dev: $(VENV)/base
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/base  ## Train in the toy world, evaluate against the gold reward and the nulls
	$(BIN)/rewardlab world --output $(DEMO)/world --overwrite
	$(BIN)/rewardlab train --config apps/recipes/demo.yaml --model $(DEMO)/world/policy \
	    --data $(DEMO)/world/train.jsonl --eval_data $(DEMO)/world/valid.jsonl --output $(DEMO)/model --overwrite
	$(BIN)/rewardlab eval --benchmark pairs --model $(DEMO)/model --reference rewardlab.benchmarks.worlds.garden:gold \
	    --data $(DEMO)/world/test.jsonl --output $(DEMO)/eval --overwrite
	@echo
	@echo "The report:        $(DEMO)/eval/report.md"
	@echo "Every judgment:    $(BIN)/rewardlab inspect $(DEMO)/eval"

test: $(VENV)/dev  ## Every test that this machine can run; what it cannot run is skipped with a reason
	$(BIN)/python -m pytest

check: $(VENV)/dev  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) build *.egg-info
