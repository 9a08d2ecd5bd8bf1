# Two commands for everybody: `make demo` and `make test`. Each sets up what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo up down test unit sandbox airflow controlplane conformance lint bench property matrix clean

PYTHON ?=
export PYTHON
# `sandbox`, or `real` for the control plane that `make controlplane` builds.
CONTROLPLANE ?= sandbox
# Built first where it is needed and nobody names another one.
BUILT := $(if $(filter real,$(CONTROLPLANE)),$(if $(EVERSTEP_CONTROLPLANE),,controlplane))
RUN := .venv/bin/python
PYTEST := $(RUN) -m pytest

help:  ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1|/' | column -t -s '|'

demo: build/.set-up $(BUILT)  ## a real training loses a slice and steps forward, on this machine
	@$(RUN) -m everstep_sandbox.demo run --controlplane $(CONTROLPLANE)

up: build/.set-up $(BUILT)  ## the demo's stack, left running with Airflow's UI
	@$(RUN) -m everstep_sandbox.demo up --controlplane $(CONTROLPLANE)

down:  ## stops what `make up` started
	@if [ -x $(RUN) ]; then $(RUN) -m everstep_sandbox.demo down; fi

test: build/.set-up  ## every tier that this machine can run
	@$(PYTEST) tests

unit: build/.set-up  ## seconds: pure logic
	@$(PYTEST) tests -m 'not sandbox and not airflow and not controlplane'

sandbox: build/.set-up  ## minutes: real processes on the embedded cluster
	@$(PYTEST) tests -m sandbox

airflow: build/.set-up  ## minutes: a real scheduler and triggerer
	@$(PYTEST) tests -m airflow

controlplane:  ## builds a real Kubernetes control plane (needs Go 1.26, 10 minutes once); tests then use it
	@scripts/build-controlplane.sh

conformance: build/.set-up  ## one suite on the sandbox's control plane and on the real one where it is built
	@$(PYTEST) tests/conformance

lint: build/.set-up  ## ruff, mypy (strict), import layers
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports

bench: build/.set-up  ## figures side by side with what users would otherwise pick, in build/bench
	@$(RUN) -m tests.bench

property: build/.set-up  ## a quarter of an hour: sweeps that die anywhere in 100,000 random histories lose nothing
	@EVERSTEP_PROPERTY_HISTORIES=100000 $(PYTEST) tests/retain/test_retention_property.py --timeout 7200

matrix: build/.set-up  ## dag.test() of the training and sweeping DAGs on Airflow 3.3, 3.1 and 2.11
	@scripts/matrix.sh

clean: down  ## removes everything that was built
	@rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

build/.set-up: pyproject.toml uv.lock
	@scripts/set-up.sh
