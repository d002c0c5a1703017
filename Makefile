# Warren. Bare `make` lists the targets; each line with two hashes behind a target is its help.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
PYTEST := $(RUN) -m pytest
PURE := build/pure
NODE := build/node

NEW_ENOUGH = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Warren needs Python 3.11 or newer: make setup PYTHON=…")'

# A process that compiles the sources anew takes a second more, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

# A test's JVM is short-lived: compiling for speed takes it longer than the test. For those that a command starts too.
QUICK_SPARK := JDK_JAVA_OPTIONS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' SPARK_CONF_DIR=$(CURDIR)/tests/pipeline/quick_spark

# The modules that mypyc compiles, and the sources whose constants it may have folded into them.
MARKED := $(shell grep -rlx --include='*.py' '\# mypyc: compile' src 2>/dev/null | sort)
FOLDED := $(shell find src -name ids.py -o -name format.py -o -name '*_format.py' 2>/dev/null | sort)
# Tests mirror the source: src/warren/records/small_blocks.py is tested by tests/records/test_lists*.py.
tests_of = $(wildcard $(subst src/warren,tests,$(dir $(1)))test_$(basename $(notdir $(1)))*.py)
MARKED_TESTS := $(foreach module,$(MARKED),$(call tests_of,$(module)))
UNTESTED := $(foreach module,$(MARKED),$(if $(call tests_of,$(module)),,$(module)))
TESTS ?= $(MARKED_TESTS)

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark setup-node peers run wheel quick test test-plain test-spark test-pure marked-tested check check-types check-house format checklist golden notebook simulate torture soak fuzz compat mutants bench clean FORCE

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.compiled  ## .venv with everything the tests need now; compiles the marked modules if there is a compiler

$(VENV)/.installed: pyproject.toml setup.py
	$(NEW_ENOUGH)
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -qq --disable-pip-version-check 'setuptools>=77' wheel
	WARREN_PURE=1 $(RUN) -m pip install -qq --disable-pip-version-check --no-build-isolation --editable '.[dev,bench]'
	@touch $@

# Rewritten only when the set of marked modules changes, so that unmarking a module rebuilds too.
$(VENV)/.marked: FORCE | $(VENV)/.installed
	@echo '$(MARKED)' | cmp -s - $@ || echo '$(MARKED)' > $@

# The shared library of the compiled modules is placed beside the package, hence src/*.so.
$(VENV)/.compiled: $(VENV)/.installed $(VENV)/.marked $(MARKED) $(if $(MARKED),$(FOLDED))
	@find src -name '*.so' -delete
	$(if $(MARKED),$(RUN) setup.py --quiet build_ext --inplace)
	@find src -name '*.so' -exec touch {} +  # a library made from unchanged C is as new as its source all the same
	@touch $@

setup-spark: $(VENV)/.spark  ## add the Spark parts (PySpark, Arrow, Delta, a Java runtime) to .venv

$(VENV)/.spark: $(VENV)/.installed | $(VENV)/.compiled
	WARREN_PURE=1 $(RUN) -m pip install -qq --disable-pip-version-check --no-build-isolation --editable '.[dev,bench,spark]'
	@touch $@

setup-node: $(NODE)/.installed  ## node's AMQP client, with which the tests walk through the broker

$(NODE)/.installed: tests/interop/node/package.json
	@command -v npm >/dev/null || { echo 'setup-node: there is no npm here; make peers installs node and npm'; exit 1; }
	@mkdir -p $(NODE) && cp $< $(NODE)/
	npm install --prefix $(NODE) --silent --no-audit --no-fund --no-package-lock
	@touch $@

peers:  ## install the Debian packages we compare with (RabbitMQ, Redis, NATS) and node, without starting any
	@.ci/peers

run: $(if $(wildcard $(VENV)/.installed),setup,$(VENV)/.runnable)  ## run the broker on 127.0.0.1:5672 (PORT=), its data in data/ (ARGS= for more); Ctrl-C stops it
	@echo 'clients: amqp://guest:guest@127.0.0.1:$(or $(PORT),5672)/    management: http://127.0.0.1:15672/    stop: Ctrl-C'
	$(BIN)/warren serve --data-dir data$(if $(PORT), --port $(PORT))$(if $(ARGS), $(ARGS))

# Only what running needs: the libraries that compile the marked modules stay in pip's own build environment.
$(VENV)/.runnable: pyproject.toml setup.py $(MARKED) $(if $(MARKED),$(FOLDED))
	$(NEW_ENOUGH)
	@echo 'installing warren and its libraries into $(VENV); compiling takes about a minute'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --disable-pip-version-check --editable .
	@touch $@

wheel:  ## build a wheel in dist/; WARREN_REQUIRE_EXT=1 fails if it would be pure Python
	@rm -rf build/lib build/lib.* build/bdist.*
	$(PYTHON) -m pip wheel --disable-pip-version-check --no-deps --wheel-dir dist .

quick: setup  ## unit, golden and conformance tests: under a minute
	$(PYTEST) -m 'not slow and not spark and not torture'

# Two lanes at a time. Tests without Spark run two by two; those with Spark one after the other, because a session waits
# about as much as it works. A process has one kind of session, so the core suite runs once for each; `local` is among
# the others. Every lane runs, whatever becomes of the others; results and failed tests of all are printed at the end.
test: setup-spark setup-node  ## every test; only campaigns are left out (simulate, torture)
	-@.ci/peers
	@rm -rf build/lanes
	-@$(MAKE) --no-print-directory --jobs=2 --output-sync=line --keep-going test-plain test-spark
	@.ci/lane --report

test-plain:
	@.ci/lane plain $(PYTEST) -m 'not torture and not spark' --numprocesses 2 --dist worksteal --durations=20

test-spark:
	@failed=0; export $(QUICK_SPARK); \
	.ci/lane spark $(PYTEST) -m 'spark and not torture' --durations=10 || failed=1; \
	WARREN_SPARK=standalone .ci/lane standalone $(PYTEST) -m 'not torture' tests/pipeline/core || failed=1; \
	WARREN_SPARK=connect .ci/lane connect $(PYTEST) -m 'not torture' tests/pipeline/core || failed=1; \
	exit $$failed

# A build without extensions, as on a machine without a compiler. PYTHONPATH puts it before the editable install,
# for the processes that the tests start as well.
test-pure: marked-tested setup  ## the compiled modules' tests once more, uncompiled (TESTS=tests runs all)
	@rm -rf $(PURE) build/lib
	@WARREN_PURE=1 $(RUN) -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps --target $(PURE) .
	@test "$$(PYTHONPATH=$(PURE) $(RUN) -m warren.base.build)" = pure || { echo 'test-pure: $(PURE) is not pure'; exit 1; }
	@if [ -n '$(strip $(TESTS))' ]; then PYTHONPATH=$(PURE) $(PYTEST) -m 'not torture' --numprocesses 2 --dist worksteal $(TESTS); \
	 else echo 'test-pure: no module is marked for compiling, so all tests run pure already'; fi

# Without it a compiled module whose test was moved or renamed would never run uncompiled.
marked-tested:
	@test -z '$(strip $(UNTESTED))' || { echo 'test-pure: no test mirrors the compiled $(strip $(UNTESTED))'; exit 1; }

# What checks types works on one core, and the house tests on the other.
check: setup  ## format, lint, strict types, house tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going check-types check-house

check-types:
	$(BIN)/mypy

check-house:
	$(PYTEST) -q tests/house

format: setup  ## format and sort imports; then read the diff
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

checklist: setup  ## rewrite docs/checklist.md from the ids that tests name
	$(RUN) -m tests.house.checklist_page

golden: setup  ## rewrite golden transcripts; the diff is reviewed like code
	WARREN_GOLDEN=rewrite $(PYTEST) -k golden

notebook: setup-spark  ## make the pictures of docs/notebook.md anew, by running its blocks
	$(RUN) -m tests.docs.notebook_page

simulate: setup  ## crash simulation over N states (make simulate N=200000)
	$(RUN) -m tools.simulator.campaign --states $(or $(N),20000)

torture: setup  ## kill -9 a real process N times on the real disk (make torture N=100)
	$(RUN) -m tests.torture.kill_loop --kills $(or $(N),100)
	$(RUN) -m tests.server.kill_drill --kills $(or $(N),100)
	$(PYTEST) -m torture

soak: setup  ## mixed traffic, churn, compaction and kill -9 on one broker for M minutes (make soak M=20)
	$(RUN) -m tests.torture.soak --minutes $(or $(M),20)

fuzz: setup  ## requests made from /api/openapi.json to one broker for M minutes (make fuzz M=10)
	$(RUN) -m tests.fuzz.http --seconds $$(( 60 * $(or $(M),10) ))

compat: setup  ## replay HTTP requests on RabbitMQ and Warren, and compare the answers
	$(RUN) -m tests.compat.replay --live

mutants: setup  ## seed faults one by one; the simulator must catch each
	$(RUN) -m tests.mutants.run

bench: setup-spark  ## the log store, the pipeline, the snapshot store, queues and the broker against their goals
	$(BIN)/warren bench log
	$(BIN)/warren bench pipeline
	$(BIN)/warren bench snapshot
	$(BIN)/warren bench reflection
	$(BIN)/warren bench queue
	$(BIN)/warren bench amqp

clean:  ## remove what was built; a clean tree but for .git
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .schemathesis src/*.egg-info
	find src -name '*.so' -delete
	find src tests -name __pycache__ -prune -exec rm -rf {} +
