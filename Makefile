# `make run` and `make test` do everything from a fresh clone: set-up in .venv, build, then the job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup run papers test check format stubs bench fidelity agreement ui clean

setup: $(SETUP)

# ns3 without its dependencies: they serve only its own Python bindings and are compiled for minutes.
$(SETUP): pyproject.toml constraints.txt CMakeLists.txt $(shell find baselines/cc envs/native ns3_scratch -name '*.[ch]*' -o -name '*.def' 2>/dev/null)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt ns3
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[all]'
	touch $(SETUP)

run: setup
	$(BIN)/bbrgym demo

papers: setup
	$(BIN)/bbrgym papers write=docs/benchmark.md

test: setup
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/python -m nbstripout --verify notebooks/*.ipynb
	find baselines/cc envs/native ns3_scratch -name '*.h' -o -name '*.cc' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/python tests/write_stubs.py --check

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	find baselines/cc envs/native ns3_scratch -name '*.h' -o -name '*.cc' | xargs $(BIN)/clang-format -i

stubs: setup
	$(BIN)/python tests/write_stubs.py

bench: setup
	$(BIN)/python benchmarks/bench.py

fidelity: setup
	$(BIN)/python benchmarks/fidelity.py --write docs/fidelity.md

agreement: setup
	$(BIN)/python benchmarks/agreement.py --quic --write docs/agreement.md

ui: setup
	$(BIN)/bbrgym ui

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
