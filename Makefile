# Each target sets up what it needs. PYTHON names the interpreter that .venv is made with.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/)java

# Tests and tasks start many processes: the first one keeps the modules that it compiles.
unexport PYTHONDONTWRITEBYTECODE
export SPARK_LOCAL_IP := 127.0.0.1
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

PYTEST := $(BIN)/pytest -n 2 --dist worksteal
# Lint beside the tests that a command runs: both have to succeed.
beside_lint = $(MAKE) --no-print-directory lint & lint=$$!; $(1); tests=$$?; \
	wait $$lint || { echo "make lint has failed: see above"; exit 1; }; exit $$tests

.PHONY: demo shop check test hosts soak flakes bench experiments lint java
.NOTPARALLEL:

demo: java $(STAMP)
	$(BIN)/python examples/live_migration.py

# In PostgreSQL: SHOP_DSN names a database of yours, else a server of its own is started.
shop: java $(STAMP)
	$(BIN)/python -m examples.shop

# What one runs while working, with short searches. Without Java: a test that starts Spark unmarked
# fails here.
check: $(STAMP)
	@$(call beside_lint,GODWIT_HYPOTHESIS=brief JAVA_HOME=/nowhere $(PYTEST) -m "not spark and not hosts")

test: java $(STAMP)
	@$(call beside_lint,$(PYTEST) -m "not hosts")

# On several hosts that this machine pretends to be, as root.
hosts: java $(STAMP)
	$(BIN)/pytest -m hosts

# Searches and random stories, far longer than in the other tiers: for nights.
soak: java $(STAMP)
	GODWIT_HYPOTHESIS=thorough $(PYTEST) -m soak --timeout 14400

# The tiers cluster and kill beside a load, ten times; goes on where it was stopped.
flakes: java $(STAMP)
	$(BIN)/python -m tests.support.tally flakes.jsonl

bench: java $(STAMP)
	$(BIN)/python -m lab bench

# All in full, one after the other: two hours.
experiments: java $(STAMP)
	for name in strategies nexmark overhead bins keys proportional load memory peers skew response \
	    recovery replication failure scaling balance varying tau planning projection tasks discount; do \
	  $(BIN)/python -m lab experiment $$name --full --output lab/results/experiments || exit 1; done

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Spark needs Java 17 or newer; `version "1.8.0"` counts as 1.
java:
	@$(if $(filter ok,$(shell $(JAVA) -version 2>&1 | awk -F'[".]' \
	    '/version "/ && $$2 >= 17 { print "ok" }')),, \
	  $(error Java 17 or newer not found: apt-get install openjdk-17-jre-headless))

$(STAMP): pyproject.toml
	@$(if $(filter ok,$(shell $(PYTHON) -c \
	    'import sys; print("ok" * (sys.version_info >= (3, 11)))' 2>/dev/null)),, \
	  $(error Python 3.11 or newer not found as $(PYTHON): try make PYTHON=python3.11))
	@$(if $(filter ok,$(shell $(PYTHON) -c \
	    'import ensurepip, venv; print("ok")' 2>/dev/null)),, \
	  $(error $(PYTHON) cannot make a virtual environment: apt-get install python3-venv))
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	@touch $@
