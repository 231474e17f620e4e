# Heronry. `make help` lists the targets; each says what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo demo-pipeline bench-pipeline test test-fast test-sim sim test-integration test-browser test-faults test-faults-all test-zookeeper test-postgres test-redis test-sftp test-brokers test-slurm test-spark test-docker test-docker-all test-swarm test-k8s which-test mutate coverage image up down bench soak bench-neighbours bench-peers check format protos wheel clean

help:  ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml deploy/setup
	@PYTHON=$(PYTHON) bash deploy/setup $(VENV)
	@touch $(READY)

setup: $(READY)  ## Make .venv with Heronry and the tools of its tests

demo: $(READY)  ## Word count over a real text on the embedded cluster, live for about 20 seconds; leaves nothing behind
	@$(BIN)/python -m examples.demo

demo-pipeline: $(READY)  ## One program online and on Spark over the same text, and the merged view of both; they must agree
	@bash deploy/spark-setup $(VENV)
	@$(BIN)/python -m examples.demo_pipeline

test: $(READY)  ## Every group of tests but slurm, swarm and k8s, with the minutes of each
	@$(BIN)/python tests/run_groups.py all

test-fast: $(READY)  ## Checks and unit tests, under 3 minutes
	@$(BIN)/python tests/run_groups.py check fast

test-sim: $(READY)  ## The seeded simulator
	@$(BIN)/python tests/run_groups.py sim

sim: $(READY)  ## The simulator over fresh seeds: make sim HOURS=8; those that break a law go to tests/sim/corpus.txt, which test-sim replays
	@$(BIN)/python -m tests.sim --hours $(or $(HOURS),1)

test-integration: $(READY)  ## Real processes of the local cluster
	@$(BIN)/python tests/run_groups.py integration

test-browser: $(READY)  ## The web page in a headless Chromium (installs it on Debian as root)
	@$(BIN)/python tests/run_groups.py browser

test-faults: $(READY)  ## Processes killed and stopped while data flows: each fault once, the rest of the table by seed
	@$(BIN)/python tests/run_groups.py faults

test-faults-all: $(READY)  ## The whole table of faults
	@HERONRY_FAULTS=all $(BIN)/python tests/run_groups.py faults

test-zookeeper: $(READY)  ## The state store on real ZooKeeper servers (adds PySpark, whose jars hold them, and Java)
	@$(BIN)/python tests/run_groups.py zookeeper

test-postgres: $(READY)  ## The PostgreSQL sink and source on a real server (installs it on Debian as root; adds psycopg)
	@$(BIN)/python tests/run_groups.py postgres

test-redis: $(READY)  ## The Redis source and sink on a real server (installs it on Debian as root; adds redis-py)
	@$(BIN)/python tests/run_groups.py redis

test-sftp: $(READY)  ## Packages and files of programs at a real SFTP server (installs OpenSSH's on Debian as root; adds fsspec and sshfs)
	@$(BIN)/python tests/run_groups.py sftp

test-brokers: $(READY)  ## The NATS, MQTT and Kafka sources and sinks on real servers and mock brokers (installs them on Debian as root; adds their clients)
	@$(BIN)/python tests/run_groups.py brokers

test-slurm: $(READY)  ## Topologies in the allocations of a real Slurm of two nodes, and its faults (installs it on Debian as root)
	@$(BIN)/python tests/run_groups.py slurm

test-spark: $(READY)  ## Programs on real Spark (adds PySpark and Java)
	@$(BIN)/python tests/run_groups.py spark

test-docker: $(READY)  ## A real cluster by docker compose, and a third of its faults by seed
	@$(BIN)/python tests/run_groups.py docker

test-docker-all: $(READY)  ## The whole table of the cluster's faults, many topologies beside each other, and the cluster's own Spark
	@HERONRY_FAULTS=all $(BIN)/python tests/run_groups.py docker

test-swarm: $(READY)  ## A real Docker Swarm of three engines in containers: what dies there, and what is lost (not in `make test`)
	@$(BIN)/python tests/run_groups.py swarm

test-k8s: $(READY)  ## A real Kubernetes of two nodes (builds it once, 7 minutes): what dies there, and what is lost (not in `make test`)
	@$(BIN)/python tests/run_groups.py k8s

which-test: $(READY)  ## The tests of a module: make which-test FILE=heron_runtime/state/files.py
	@$(BIN)/python tests/which_test.py $(FILE)

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

bench: $(READY)  ## The table of benchmarks and bars (about ten minutes; records, never fails on time)
	@$(BIN)/python -m benchmarks.bars --json bench.json

soak: $(READY)  ## Long run under watch, with kills and submits: make soak MINUTES=120; what grows, and how fast
	@$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),10)

bench-neighbours: $(READY)  ## Ten topologies beside each other: one crashes, one leaks, one prints; what the others keep (five minutes)
	@$(BIN)/python -m benchmarks.neighbours

bench-peers: $(READY)  ## The same workloads on other engines beside ours (installs each into a cache folder, 1 GB)
	@$(BIN)/python -m benchmarks.peers --json bench-peers.json

bench-pipeline: $(READY)  ## Programs against the same by hand: word count in a warm Spark and online; five programs on all engines, as whole commands (20 minutes)
	@bash deploy/spark-setup $(VENV)
	@$(BIN)/python -m benchmarks.pipeline
	@$(BIN)/python -m benchmarks.streamlets
	@$(BIN)/python -m benchmarks.engines

check: $(READY)  ## ruff, mypy, import walls, generated protobuf code
	@$(BIN)/python tests/run_groups.py check

format: $(READY)  ## Let ruff format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

protos: $(READY)  ## Generate the protobuf code
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/*.proto

wheel: $(READY)  ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel --outdir dist .

clean:  ## Remove the environment and caches
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
