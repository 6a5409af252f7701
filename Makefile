# Each target makes the virtual environment it needs; nothing has to be installed before.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Two processes of TensorFlow fit two cores and 24 GiB; JOBS=1 runs the tests one by one.
JOBS ?= 2
# Devices are set once in a process, so a file stays in one. The longest files have the fewest
# tests, and must not come last.
IN_PARALLEL = -n $(JOBS) --dist loadfile --no-loadscope-reorder
DATA ?=
# What test-matrix runs.
MATRIX ?= tests
# tests/pure alone covers every branch of the modules below the wall: these, without those.
PURE = keras_tpu_kit/*.py,keras_tpu_kit/checks/*.py
NOT_PURE = */__*__.py,*/placement.py,*/stock_training.py

.PHONY: demo test test-pure test-matrix lint docs equality benchmarks package clean

demo: $(VENV)/.demo
	$(BIN)/keras-tpu-kit demo $(if $(DATA),--data $(DATA))

test: lint docs
	$(BIN)/python -m pytest $(IN_PARALLEL)

test-pure: $(VENV)/.dev
	$(BIN)/python -m pytest tests/pure --cov --cov-report=
	$(BIN)/coverage report --show-missing --skip-covered --fail-under=100 \
		--include='$(PURE)' --omit='$(NOT_PURE)'

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# TensorFlow 2.19.1 is the release for TPUs; an environment of its own holds it.
test-matrix:
	$(MAKE) VENV=.venv-tf219 TENSORFLOW='tensorflow==2.19.1' .venv-tf219/.dev
	.venv-tf219/bin/python -m pytest $(IN_PARALLEL) $(MATRIX)

equality: $(VENV)/.dev
	$(BIN)/python benchmarks/equality.py

benchmarks: $(VENV)/.dev
	$(BIN)/python benchmarks/fit.py $(if $(DATA),--data $(DATA))
	$(BIN)/python benchmarks/overhead.py $(if $(DATA),--data $(DATA))

package: $(VENV)/.dev
	$(BIN)/python -m build

clean:
	rm -rf .venv .venv-tf219 build dist site .pytest_cache .mypy_cache .ruff_cache

TENSORFLOW ?= tensorflow>=2.19.1,<2.22

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: setup.cfg | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet '$(TENSORFLOW)' --editable .
	touch $@

$(VENV)/.dev: setup.cfg | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet '$(TENSORFLOW)' --editable '.[dev,docs,preflight]'
	touch $@ $(VENV)/.demo
