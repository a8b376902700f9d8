# The two commands of the README, and what they stand on. Everything else is in CONTRIBUTING.md.

# The newest Python from 3.11 on that can make virtual environments (Debian's needs its package python3-venv).
PYTHON ?= $(shell for name in python3.14 python3.13 python3.12 python3.11 python3; do \
	$$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$name && break; \
	done)
VENV := .venv
STEPTIME := $(VENV)/bin/steptime
# pip's notice of a newer pip stands between a reader and the answer.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Made again whenever the dependencies may have changed. CORE draws pages too; Python compiles what it imports of it, and
# pip all, which takes a third of its time.
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs

# Exit code 3 of steptime: a framework could not be had here, and it said which and how to get it.
WITHOUT_SOME := || test $$? = 3
# Or 4: its budget left trials out. The ranking of the others is printed, and how to go on, which is no error of make.
WITHIN_BUDGET := || case $$? in 3|4) ;; *) exit 1 ;; esac
# Old frameworks die of a signal now and then, and a virtual machine's host can hold up its memory or disk for minutes,
# during which a launch stands still in the kernel until its time limit. A test that met either is repeated once, and the
# report says so; one that met a wrong number is not. (Claims about measured times, marked `alone`, are measured anew by
# themselves.)
AFTER_A_CRASH := --reruns 1 --only-rerun "was ended by SIG" --only-rerun "still running; .* waits for a disk"
# Three processes, since on two cores two of them wait for launches a third of the time; tests that share a launch, an environment or a page run in the same one (tests/conftest.py groups them).
# BLAS of one thread each: of more, all but one would wait busily for small matrices.
IN_PARALLEL := --tx '3*popen//env:OPENBLAS_NUM_THREADS=1' --dist loadscope --no-loadscope-reorder --durations=15
# One line for each skipped test: its reason.
SKIPPED := $(VENV)/.skipped
# Locked by `.ci/run` while it makes environments beside the tests. Claims about measured times wait for it.
MAKING := $(VENV)/.making
# Ends the target with what was skipped, also when a test has failed.
SAY_SKIPPED = code=$$?; $(VENV)/bin/python .ci/skipped_tests.py $(SKIPPED); exit $$code

# On a machine that does more than it has cores for, one in some thousand tests fails for that alone. `make test-ci` tries up
# to three once more when nothing else runs, and names them; the first failure stands above. pytest ends with 1 for failures.
FAILED_AGAIN = || { test $$? = 1 && flock $(MAKING) true && $(VENV)/bin/python .ci/failed_again.py
# What `make test` and `make test-ci` run. The latter adds what takes minutes and guards one place, and the claims about
# measured times, which have the machine to themselves.
DEFAULT_TESTS = -m pytest $(IN_PARALLEL) --frameworks default --skipped-to=$(SKIPPED) $(AFTER_A_CRASH) $(TESTS)
# Folders or files for whoever changes one place: `make test-ci TESTS=tests/launchers`. Some have no claim about times.
TESTS :=
MAYBE_NONE = $(if $(TESTS),|| test $$? = 5)
# Without bytecode on disk every process compiles all modules anew: that is most of what collecting tests takes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: race quick pure-tests test default-tests test-all test-ci ci-tests coverage test-environments test-frameworks \
	further-environments further-tests fuzz lint docs wheel try-wheel setup develop clean

race: $(CORE)  ## race four frameworks on this machine and write a report
	$(STEPTIME) run quickstart $(WITHIN_BUDGET)

quick: $(DEV)  ## lint, and the tests that start no process and take no long time: at most a minute
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint pure-tests

pure-tests:
	$(VENV)/bin/python -m pytest -q --tx '2*popen//env:OPENBLAS_NUM_THREADS=1' --dist loadscope --quick

test: $(DEV)  ## make what the tests need, run most of them, and show what was skipped
	@rm -f $(SKIPPED)
	@$(MAKE) --no-print-directory default-tests; $(SAY_SKIPPED)

default-tests: test-environments
	$(VENV)/bin/python $(DEFAULT_TESTS) -m "not alone and not costly"

test-all: test-ci test-frameworks  ## every test

test-ci: $(DEV)  ## as `make test`, with what it leaves out
	@rm -f $(SKIPPED)
	@$(MAKE) --no-print-directory ci-tests; $(SAY_SKIPPED)

ci-tests: test-environments
	@rm -f .pytest_cache/v/cache/lastfailed
	$(VENV)/bin/python $(DEFAULT_TESTS) -m "not alone" $(FAILED_AGAIN) --frameworks default; }
	@flock $(MAKING) true
	$(VENV)/bin/python -m pytest --skipped-to=$(SKIPPED) -m alone $(TESTS) $(MAYBE_NONE)

# Counting doubles the processor time of what computes in Python, so that a merge does not wait for it.
coverage: test-environments  ## the tests of `test-ci` that run side by side, and the share of the core's lines that they run
	$(VENV)/bin/coverage erase
	$(VENV)/bin/coverage run $(DEFAULT_TESTS) -m "not alone"
	$(VENV)/bin/python .ci/coverage_by_package.py

test-environments:
	$(STEPTIME) env create pytorch tensorflow mxnet chainer pytorch-dali $(WITHOUT_SOME)
	$(STEPTIME) data make digits photos

test-frameworks: $(DEV)  ## make every environment that this machine can have, and test frameworks other than PyTorch
	@rm -f $(SKIPPED)
	@$(MAKE) --no-print-directory further-tests; $(SAY_SKIPPED)

further-environments:
	$(STEPTIME) env create --all $(WITHOUT_SOME)
	$(STEPTIME) env create deepspeed-dali horovod_pytorch-dali jax-dali $(WITHOUT_SOME)

further-tests: further-environments
	$(VENV)/bin/python -m pip install -q -e '.[ray]'
	$(STEPTIME) data make digits photos
	@rm -f .pytest_cache/v/cache/lastfailed
	$(VENV)/bin/python -m pytest $(IN_PARALLEL) --frameworks further --skipped-to=$(SKIPPED) $(AFTER_A_CRASH) $(TESTS) \
		$(MAYBE_NONE) $(FAILED_AGAIN) --frameworks further; }

fuzz: $(DEV)  ## feed 5,000 mutants of studies, records, profiles, points and manifests to the program
	$(VENV)/bin/python tests/corpus/fuzz.py --mutants 5000

lint: $(DEV)  ## style, types, layers, and the old Python of the worker half
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/vermin --no-tips -q -t=3.6- --violations src/steptime/worker src/steptime/libraries src/steptime/frameworks/*/*.py
	$(VENV)/bin/vermin --no-tips -q -t=3.8- --violations src/steptime/attach

docs: $(DOCS)  ## write the generated pages and build build/docs/index.html; warnings are errors
	$(VENV)/bin/python docs/reference_pages.py
	$(VENV)/bin/python -m sphinx -q -W --keep-going -b html docs build/docs

wheel: $(DEV)  ## build dist/steptime-VERSION.tar.gz and, of that, dist/steptime-VERSION-py3-none-any.whl
	rm -rf dist
	$(VENV)/bin/python -m hatchling build -t sdist
	$(VENV)/bin/python -m pip wheel -q --no-deps -w dist dist/*.tar.gz

# EVERY=--every fails where one of them is not here.
try-wheel: wheel  ## install the wheel into an empty environment of each Python that it supports, and run the demo there
	$(VENV)/bin/python .ci/try_wheel.py $(EVERY) dist/*.whl

setup: $(CORE)  ## steptime itself, without the tools of its developers

develop: $(DEV)  ## with these tools

$(CORE): pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python from 3.11 on with the modules venv and ensurepip was found. Install one" \
		"(sudo apt-get install python3 python3-venv; or pyenv install 3.13), or name it: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q --no-compile -e '.[page,uv]'
	touch $@

$(DEV): $(CORE)
	$(VENV)/bin/python -m pip install -q -e '.[dev]'
	touch $@

$(DOCS): $(CORE)
	$(VENV)/bin/python -m pip install -q -e '.[docs]'
	touch $@

clean:  ## remove the project's own environment; framework environments are removed by `steptime env remove`
	rm -rf $(VENV)
