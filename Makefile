# Each target sets up what it needs in .venv, once; `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
export TORCH_INDEX

.PHONY: help setup demo test test-long test-vllm test-studio studio docs lint format wheel-check doctor clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup:  ## .venv with everything that the tests and the demo need, and the embedded model
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

demo: setup  ## solve a real problem with the embedded model and watch it learn
	@$(BIN)/python -m examples.demo

test: setup  ## the tests (under 8 minutes on 2 cores)
	@$(BIN)/python -m pytest -n 2 --dist loadfile

test-long: setup  ## kill loops, leak cycles, whole runs
	@$(BIN)/python -m pytest -m long --timeout 1800

test-vllm:  ## the policy's contract and more over vLLM's CPU build, in .venv-vllm (4 GB)
	@PYTHON="$(PYTHON)" sh scripts/setup_vllm.sh
	@.venv-vllm/bin/python -m pytest --vllm -m "vllm or not long" --timeout 1800 \
		tests/policy/test_vllm.py tests/policy/test_contract.py tests/policy/test_contract_refusals.py

studio:  ## LangGraph Studio's dev server on loopback, in .venv-studio (POT_MODEL chooses the model)
	@PYTHON="$(PYTHON)" sh scripts/setup_studio.sh
	@LANGGRAPH_CLI_NO_ANALYTICS=1 .venv-studio/bin/langgraph dev --host 127.0.0.1 --no-browser

test-studio:  ## drive that server's API as Studio does, over a tiny model
	@PYTHON="$(PYTHON)" sh scripts/setup_studio.sh
	@.venv-studio/bin/python -m scripts.check_studio

docs:  ## the documentation site, into site/
	@PYTHON="$(PYTHON)" sh scripts/setup_docs.sh
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

lint: setup  ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: setup  ## let ruff rewrite
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

wheel-check: setup  ## build the wheel and try it, core alone, in a clean venv outside this folder
	@sh scripts/check_wheel.sh

doctor: setup  ## what this machine has
	@$(BIN)/pot doctor

clean:  ## remove .venv and caches
	rm -rf .venv .venv-vllm .venv-studio .venv-docs site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
