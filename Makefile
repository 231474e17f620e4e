# Heronry. `make help` lists the targets; each says what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo demo-pipeline test test-all test-group test-faults test-spark test-docker test-slurm test-swarm test-k8s sim mutate coverage image up down bench bench-pipeline bench-peers soak check format protos lock wheel docs docs-serve clean

help:  ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml deploy/setup deploy/constraints.txt
	@PYTHON=$(PYTHON) bash deploy/setup $(VENV)
	@touch $(READY)

setup: $(READY)  ## Make .venv with Heronry and the tools of its tests

demo: $(READY)  ## Word count over a real text on the embedded cluster, live for about 20 seconds; leaves nothing behind
	@$(BIN)/python -m examples.demo

demo-pipeline: $(READY)  ## One program online and on Spark over the same text, and the merged view of both; they must agree
	@bash deploy/spark-setup $(VENV)
	@$(BIN)/python -m examples.demo_pipeline

test: $(READY)  ## Checks, unit tests and the core of the other groups (about 12 minutes on two cores)
	@$(BIN)/python tests/groups.py ordinary

test-all: $(READY)  ## Every group but slurm, swarm and k8s (50 to 70 minutes on two cores); a green run goes to tests/minutes.csv
	@$(BIN)/python tests/groups.py all

test-group: $(READY)  ## These groups, whole: make test-group GROUP="redis zookeeper"; without GROUP it lists them
	@$(BIN)/python tests/groups.py $(GROUP)

test-faults: $(READY)  ## Processes killed and stopped while data flows: the whole table
	@$(BIN)/python tests/groups.py faults

test-spark: $(READY)  ## Programs on real Spark (adds PySpark and Java)
	@$(BIN)/python tests/groups.py spark

test-docker: $(READY)  ## A real cluster by docker compose: the whole table of its faults, and the cluster's own Spark
	@$(BIN)/python tests/groups.py docker

test-slurm: $(READY)  ## Topologies in the allocations of a real Slurm of two nodes, and its faults (installs it on Debian as root)
	@$(BIN)/python tests/groups.py slurm

test-swarm: $(READY)  ## A real Docker Swarm of three engines in containers: what dies there, and what is lost
	@$(BIN)/python tests/groups.py swarm

test-k8s: $(READY)  ## A real Kubernetes of two nodes (builds it once, 7 minutes): what dies there, and what is lost
	@$(BIN)/python tests/groups.py k8s

sim: $(READY)  ## The simulator over fresh seeds: make sim HOURS=8; seeds that break an invariant go to tests/sim/corpus.txt
	@$(BIN)/python -m tests.sim --hours $(or $(HOURS),1)

mutate: $(READY)  ## Mutants of the cores: would the unit tests notice? make mutate FILES=stream_manager/core/credit.py EACH=20
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group mutation
	@nice $(BIN)/python -m tests.mutation $(FILES) --each $(or $(EACH),8) --seed $(or $(SEED),1) --minutes $(or $(MINUTES),30)

coverage: $(READY)  ## Which lines the fast tests run: htmlcov/index.html (a report, not a gate)
	@$(BIN)/python -m pytest tests/unit -n 2 --cov --cov-report=html --cov-report=term:skip-covered

image:  ## Build the image of the data plane; says its size and how long it took
	@deploy/build

up:  ## A cluster by docker compose: makes what is missing, waits until all is healthy, says how to log in
	@deploy/up

down:  ## End the cluster and all that runs on it; KEEP=1 keeps its volumes
	@deploy/down

bench: $(READY)  ## The table of benchmarks and targets (ten minutes); AGAINST=CHECKOUT alternates with another version
	@$(BIN)/python -m benchmarks.bars $(if $(AGAINST),--against $(AGAINST)) --json bench.json

soak: $(READY)  ## Long run under watch, with kills and submits: make soak MINUTES=120; what grows, and how fast
	@$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),10)

bench-peers: $(READY)  ## The same workloads on other engines beside ours (installs each into a cache folder, 1 GB)
	@$(BIN)/python -m benchmarks.peers --json bench-peers.json

bench-pipeline: $(READY)  ## Programs against the same by hand: word count in a warm Spark and online; five programs on all engines, as whole commands (20 minutes)
	@bash deploy/spark-setup $(VENV)
	@$(BIN)/python -m benchmarks.pipeline
	@$(BIN)/python -m benchmarks.streamlets
	@$(BIN)/python -m benchmarks.engines

check: $(READY)  ## ruff, mypy, import contracts, generated protobuf code
	@$(BIN)/python tests/groups.py check

format: $(READY)  ## Let ruff format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

protos: $(READY)  ## Generate the protobuf code
	@$(BIN)/python protos/generate.py heron_runtime/wire/generated

lock: $(READY)  ## Lock the packages of images with hashes: deploy/lock, from pyproject.toml and deploy/constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group lock
	@$(BIN)/python deploy/update-lock

docs: $(READY)  ## Build the documentation into site/; warnings are errors
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict && echo "documentation: site/index.html"

docs-serve: $(READY)  ## Serve the documentation at http://127.0.0.1:8000 and rebuild it when a page changes
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

wheel: $(READY)  ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel --outdir dist .

clean:  ## Remove the environment and caches
	@rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
