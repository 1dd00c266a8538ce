# Two commands for a newcomer: `make demo` and `make test`. Each makes .venv itself. `make test-all` has what takes long.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN ?= data/runs/sample
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
# For test-vllm: the server's address; the vllm command and its options, for batch files.
URL ?=
VLLM ?=
VLLM_OPTIONS ?=

.PHONY: demo test test-all test-vllm lint docs bench clean

demo: $(VENV)/base
	$(BIN)/darklode demo --out $(RUN)

# Without mypy, which takes a minute and a half: `make lint` runs it, and so does `make test-all`.
test: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(PYTEST) -m "not slow" -p no:randomly

test-all: lint
	$(PYTEST) -m slow

test-vllm: $(VENV)/dev
	@test -n "$(URL)" || { echo "say where vLLM is: make test-vllm URL=http://127.0.0.1:8000/v1" >&2; exit 2; }
	DARKLODE_VLLM_URL="$(URL)" DARKLODE_VLLM="$(VLLM)" DARKLODE_VLLM_OPTIONS="$(VLLM_OPTIONS)" \
		$(BIN)/python -m pytest tests/opt_in/test_vllm.py -rA --tb=short

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/dev
	$(BIN)/zensical build --strict --clean

bench: $(VENV)/dev
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks

$(VENV)/base: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Darklode needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/dev: $(VENV)/base
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) site .cache data/runs data/cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
