# The two commands of the README, and what they stand on. Everything else is in CONTRIBUTING.md.

PYTHON ?= python3.11
VENV := .venv
STEPTIME := $(VENV)/bin/steptime
# Made again whenever the dependencies may have changed.
CORE := $(VENV)/.core
DEV := $(VENV)/.dev

# Old frameworks die of a signal now and then. A test that met such a death is repeated once, and the report says so;
# one that met a wrong number is not. (Claims about measured times, marked `alone`, are measured anew by themselves.)
AFTER_A_CRASH := --reruns 1 --only-rerun "was ended by SIG"

.PHONY: race test test-frameworks lint setup clean

race: $(CORE)  ## race four frameworks on this machine and write a report
	$(STEPTIME) run quickstart

test: $(DEV)  ## make what the tests need, then run all of them
	$(STEPTIME) env create pytorch tensorflow mxnet chainer
	$(STEPTIME) data make digits photos
	$(VENV)/bin/python -m pytest -n 2 --rooms default $(AFTER_A_CRASH) -m "not alone"
	$(VENV)/bin/python -m pytest -m alone

test-frameworks: $(DEV)  ## make every environment that this machine can have, then run the tests of the further rooms
	$(STEPTIME) env create --all || test $$? = 3
	$(STEPTIME) data make digits photos
	$(VENV)/bin/python -m pytest -n 2 --rooms further $(AFTER_A_CRASH)

lint: $(DEV)  ## style, types, layers, and the old Python of the worker half
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/vermin --no-tips -q -t=3.6- --violations src/steptime/worker src/steptime/libraries src/steptime/frameworks/*/*.py

setup: $(DEV)

$(CORE): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q -e .
	touch $@

$(DEV): $(CORE)
	$(VENV)/bin/python -m pip install -q -e '.[dev]'
	touch $@

clean:  ## remove the project's own environment; framework environments are removed by `steptime env remove`
	rm -rf $(VENV)
