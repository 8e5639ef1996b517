# kraftbridge: every command that work on the project needs. `make` lists them.
#
#   KUBE_CONTEXT=name   e2e, demo and bench use that cluster instead of the embedded one
#   VENV=dir            another place for the Python environment
#   UV=file             another uv; otherwise the one on PATH, or one of our own in the cache
#   REGISTRY=host/path  `make images` pushes operator and verifier there; `make release-dry-run` names them so
#   ARGS=…              further arguments for pytest, the demo or the benchmark

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

CACHE := $(or $(KRAFTBRIDGE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kraftbridge)
VENV ?= .venv
PYTHON := $(VENV)/bin/python
BASE_PYTHON ?= python3
# Debian's own where there is one: the images have it, and what it misreads (3.11.2: gh-106052) a later one does not show.
TEST_PYTHON ?= $(or $(wildcard /usr/bin/python3.11),$(BASE_PYTHON))
UV_VERSION := 0.13.8
OWN_UV := $(CACHE)/uv/bin/uv
UV ?= $(or $(shell command -v uv 2>/dev/null),$(OWN_UV))
ARTIFACTS := .artifacts
ARGS ?=
CLUSTER := e2e/cluster/cluster
ifneq ($(strip $(KUBE_CONTEXT)),)
export KUBE_CONTEXT
endif
# No module is taken from the directory in which Python happens to start (operator/ is the name of a standard library module).
export PYTHONSAFEPATH := 1

SAY = @printf '\n==> %s\n'
PYTEST = $(PYTHON) -m pytest --junitxml=$(ARTIFACTS)/junit/$@.xml -o junit_family=xunit2

# Tests with real processes get a second try; what failed at first is printed in full and counted in the last line.
SECOND_TRY := --reruns 1

TIERS := venv prerequisites lint unit component cluster-build chart spark integration images cluster-up chart-live e2e

.PHONY: help
help: ## list these targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done

# ------------------------------------------------------------------------------------------------ environment

$(OWN_UV):
	$(SAY) "installing uv $(UV_VERSION) into $(CACHE)/uv"
	@$(BASE_PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(BASE_PYTHON) cannot make environments; run: apt-get install -y python3-venv"; exit 1; }
	@mkdir -p $(CACHE)
	@$(BASE_PYTHON) -m venv $(CACHE)/uv
	@$(CACHE)/uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# The stamp is inside the environment: whoever removes the environment removes it, too.
$(VENV)/.kraftbridge-stamp: requirements/dev.lock pyproject.toml | $(if $(filter $(OWN_UV),$(UV)),$(OWN_UV))
	$(SAY) "making $(VENV) from requirements/dev.lock, hashes checked"
	@test -x $(PYTHON) || $(UV) venv --quiet --no-python-downloads --python $(TEST_PYTHON) $(VENV)
	@$(UV) pip sync --quiet --python $(PYTHON) --require-hashes requirements/dev.lock
	@$(UV) pip install --quiet --python $(PYTHON) --no-deps --editable .
	@rm -f $(VENV)/lib/python3*/site-packages/pyspark/python/lib/*.zip  # as in the Dockerfile
	@touch $@

.PHONY: venv
venv: $(VENV)/.kraftbridge-stamp ## make the Python environment from requirements/dev.lock (uv, hashes checked)

.PHONY: prerequisites
prerequisites: ## install the Debian packages that the embedded cluster, Spark and Kafka need (as root)
	$(SAY) "$(if $(KUBE_CONTEXT),looking for Java: a cluster is given by KUBE_CONTEXT,installing what is missing of the Debian packages)"
	@$(if $(KUBE_CONTEXT),command -v java >/dev/null || { echo "no java on PATH; run: apt-get install -y openjdk-17-jdk-headless maven"; exit 1; },$(CLUSTER) prerequisites)

.PHONY: java
java:
	@command -v java >/dev/null || { echo "no java on PATH; run: make prerequisites"; exit 1; }

.PHONY: lock
lock: | $(if $(filter $(OWN_UV),$(UV)),$(OWN_UV)) ## resolve requirements/*.lock anew from pyproject.toml
	$(SAY) "resolving the three lock files from pyproject.toml"
	@compile="$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url pyproject.toml"; \
	  $$compile --extra operator -o requirements/runtime.lock && \
	  $$compile --extra spark -o requirements/verifier.lock && \
	  $$compile --extra operator --extra spark --extra plugin --group dev --group benchmarks --group docs -o requirements/dev.lock

.PHONY: crds
crds: venv ## generate the CRD, its copy in the chart, docs/api.md and docs/findings.md
	$(SAY) "writing crds/kafkamigrations.yaml, helm/kraftbridge/files/crds/kafkamigrations.yaml docs/api.md and docs/findings.md"
	@$(PYTHON) -m kraftbridge.models.crd > crds/kafkamigrations.yaml
	@cp crds/kafkamigrations.yaml helm/kraftbridge/files/crds/kafkamigrations.yaml
	@$(PYTHON) docs/generate.py

# ------------------------------------------------------------------------------------------------ tests

.PHONY: test
test: ## everything, in this order: lint, unit, component, chart, spark, integration, images, one migration end to end
	$(SAY) "all tiers, one after the other, until one fails: $(TIERS)"
	@$(BASE_PYTHON) .ci/tiers.py $(TIERS)

# mkdocs-material prints a notice about MkDocs 2 unless this is set; --strict makes a warning an error, but with --quiet it counts none.
MKDOCS = NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

.PHONY: docs
docs: venv ## build the documentation site into out/site (mkdocs --strict: links and anchors are checked)
	$(SAY) "documentation site in out/site"
	@$(PYTHON) docs/generate.py
	@$(MKDOCS) --site-dir out/site

.PHONY: lint
lint: venv ## ruff (check and format), mypy --strict, import contracts, generated pages, documentation site
	$(SAY) "ruff check"
	@$(PYTHON) -m ruff check operator tests e2e benchmarks docs .ci
	$(SAY) "ruff format --check"
	@$(PYTHON) -m ruff format --check operator tests e2e benchmarks docs .ci
	$(SAY) "mypy --strict"
	@$(PYTHON) -m mypy
	$(SAY) "import contracts"
	@$(VENV)/bin/lint-imports --no-logo
	$(SAY) "generated pages"
	@$(PYTHON) docs/generate.py --check
	$(SAY) "documentation site, links and anchors checked"
	@mkdir -p $(ARTIFACTS); $(MKDOCS) --site-dir $(ARTIFACTS)/site >$(ARTIFACTS)/mkdocs.log 2>&1 || { cat $(ARTIFACTS)/mkdocs.log; exit 1; }

.PHONY: unit
unit: venv ## pure tests: phases, gates, builders, models, simulated clusters, metadata library, repository layout
	$(SAY) "unit tests and simulated clusters, without the search for planted bugs and the worlds of their own (make simulate-planted)"
	@$(PYTEST) -n logical --maxprocesses 4 --dist worksteal tests/unit tests/simulation -m "not long" $(ARGS)

.PHONY: simulate-planted
simulate-planted: venv ## the simulation finds each bug that is planted into it, and walks each world of its own (many minutes)
	$(SAY) "planted bugs"
	@$(PYTEST) -n logical --maxprocesses 4 --dist worksteal tests/unit/phases -m long $(ARGS)

EXAMPLES ?= 5000
.PHONY: fuzz
fuzz: venv ## EXAMPLES=5000 changed inputs for each decoder of what comes from outside (make unit tries 60 of each)
	$(SAY) "$(EXAMPLES) changed inputs for each decoder"
	@FUZZ_EXAMPLES=$(EXAMPLES) $(PYTEST) -n logical --maxprocesses 4 tests/unit/fuzz tests/unit/metadata/test_fuzzing.py $(ARGS)

RUNS ?= 1000
.PHONY: simulate
simulate: venv ## RUNS=1000 simulated migrations under random faults; prints what was covered and every broken promise (ARGS='--results FILE' resumes)
	$(SAY) "$(RUNS) simulated migrations"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.simulation --runs $(RUNS) $(ARGS)

.PHONY: component
component: venv ## the operator in process against an in-process Kubernetes API
	$(SAY) "component tests"
	@$(PYTEST) tests/component $(ARGS)

.PHONY: chart
chart: venv ## helm lint, rendered templates, values schema, CRD copy
	$(SAY) "chart tests"
	@$(PYTEST) -n logical --maxprocesses 4 --dist worksteal tests/chart --ignore=tests/chart/live $(ARGS)

.PHONY: chart-live
chart-live: venv ## CRD rules and admission policies against a running cluster's API server, or one of KUBERNETES_VERSION=1.35.4 (built once: minutes)
	$(SAY) "CRD rules and admission policies on $(or $(and $(KUBERNETES_VERSION),an API server $(KUBERNETES_VERSION)),$(KUBE_CONTEXT),the embedded cluster)"
	@$(if $(KUBERNETES_VERSION),$(CLUSTER) with-api-server $(KUBERNETES_VERSION)) $(PYTEST) tests/chart/live -m "not long" $(SECOND_TRY) $(ARGS)
	$(if $(KUBERNETES_VERSION),,$(SAY) "not run: other versions of the API server (make support), attacks on verifications (make strangers-live)")

.PHONY: support
support: venv ## CRD rules and admission policies against each supported version of the API server: what has no result yet (resumable; ARGS="--again 1.36.3")
	$(SAY) "CRD rules and admission policies on every supported version of Kubernetes"
	@PYTHONPATH=$(CURDIR)/.ci $(PYTHON) .ci/support.py $(ARGS); code=$$?; $(PYTHON) docs/generate.py; exit $$code

.PHONY: strangers-live
strangers-live: venv cluster-up images ## attacks on verifications from a pod of the same namespace, with their NetworkPolicy and without it (10 minutes)
	$(SAY) "attacks on verifications on the embedded cluster"
	@$(PYTEST) tests/chart/live/test_strangers.py $(ARGS)

.PHONY: alerts
alerts: venv ## alerts by promtool, alerts and dashboard in a real Prometheus (its build takes minutes once; not part of make test)
	$(SAY) "Prometheus and promtool: $(CACHE)"
	@$(CLUSTER) build
	@$(CLUSTER) build-prometheus
	$(SAY) "alerts and dashboard"
	@$(PYTEST) tests/alerts $(ARGS)

.PHONY: dashboard-picture
dashboard-picture: venv ## docs/images/dashboard.svg of the next migration on the embedded cluster: run it beside `make demo`, after `make alerts`
	@eval "$$($(CLUSTER) env)"; $(PYTHON) docs/dashboard_picture.py $(ARGS)

.PHONY: spark
spark: venv java ## the verification job in a local Spark session
	$(SAY) "Spark tests, without those that wait for minutes (make spark-long)"
	@$(PYTEST) -n 2 --dist loadfile tests/spark -m "not long" $(SECOND_TRY) $(ARGS)

.PHONY: spark-long
spark-long: venv java ## verification tests that wait for minutes: ZooKeeper frozen under writes
	$(SAY) "long Spark tests"
	@$(PYTEST) tests/spark -m long $(ARGS)

.PHONY: journey
journey: venv java ## clusters of Kafka 2.4 to 3.9 to KRaft and back on real processes, clients at work, resumable; results in benchmarks/measured/journey (ARGS='--release 2.8.2 --again')
	$(SAY) "old releases on the way to KRaft"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.journey $(ARGS); code=$$?; $(PYTHON) docs/generate.py && exit $$code

.PHONY: journey-series
journey-series: venv java ## ten journeys to KRaft from 2.4, 2.7 and 2.8 in two orders, each with its own trouble, resumable; results in benchmarks/measured/journey-series.jsonl
	$(SAY) "journeys around topic ids"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.journey.series $(ARGS); code=$$?; $(PYTHON) docs/generate.py && exit $$code

.PHONY: journey-kafka4
journey-kafka4: venv java ## migrated clusters to Kafka 4.0 to 4.4 and back on real processes, clients at work, resumable; results in benchmarks/measured/journey-kafka4 (ARGS='--release 4.4.0 --again')
	$(SAY) "on to Kafka 4"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.journey.kafka4 $(ARGS); code=$$?; $(PYTHON) docs/generate.py && exit $$code

.PHONY: odd-trees
odd-trees: venv java ## odd ZooKeeper trees through a real Kafka controller, resumable; results in benchmarks/measured/odd-trees (ARGS='--seconds 600 --only "quota"')
	$(SAY) "odd trees"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.odd_trees --work $(ARTIFACTS)/odd-trees $(ARGS)
	@$(PYTHON) docs/generate.py
RUNS_RANDOM ?= 20
.PHONY: rehearsal-long
rehearsal-long: venv java ## every known trap and RUNS_RANDOM=20 pairs of random trees through Kafka's own migration: what has no result yet (minutes; resumable)
	$(SAY) "rehearsals without a result"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.rehearsal traps $(ARGS)
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m tests.rehearsal random --runs $(RUNS_RANDOM) $(ARGS)

.PHONY: integration
integration: venv java ## storages and decoders against real ZooKeeper and Kafka processes on this host
	$(SAY) "integration tests, without those that wait for minutes (make integration-long)"
	@$(PYTEST) -n 2 --dist loadfile tests/integration -m "not long" $(SECOND_TRY) $(ARGS)

.PHONY: integration-long
integration-long: venv java ## integration tests that wait for minutes: what Kafka itself does with odd trees, quotas, lost stores, a rollback under writes and a renewed authority, and the watchers of the load through a migration
	$(SAY) "long integration tests"
	@$(PYTEST) tests/integration -m long $(SECOND_TRY) $(ARGS)

FIXES_ON := $(or $(KUBERNETES_VERSION),$(shell sed -n 's/^KUBERNETES_VERSION=//p' e2e/cluster/versions.env))
.PHONY: fixes
fixes: venv java ## what the catalogue of findings tells people to run, against real Kafka and a real API server; the catalogue's reason for the rest (10 minutes)
	$(SAY) "fixes of findings, on Kafka processes and on $(or $(KUBE_CONTEXT),an API server $(FIXES_ON))"
	@$(if $(KUBE_CONTEXT),,$(CLUSTER) with-api-server $(FIXES_ON)) $(MAKE) --no-print-directory fixes-here

.PHONY: fixes-here
fixes-here: # the tests of `make fixes`, once there is an API server
	@$(PYTEST) tests/fixes tests/integration/test_config_that_stops_failovers.py $(ARGS)

.PHONY: e2e
e2e: venv cluster-up images ## bad input, and a migration of a real Kafka cluster on a real Kubernetes
	$(SAY) "end-to-end tests on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTEST) -s e2e -m "not long" --ignore e2e/test_3_rollback.py --ignore e2e/test_4_dry_start.py --ignore e2e/test_5_deleted.py --ignore e2e/test_7_paths.py $(ARGS)
	$(SAY) "not run: the way back (make rollback-live), copies of pods that would not start as they should (make dry-start-live), deleted objects in four phases (make deletions-live), a lost quorum (make lost-quorum-live), a NetworkPolicy that keeps the controllers from the brokers (make paths-live), metadata.version down and up; make e2e-long runs all"

.PHONY: e2e-long
e2e-long: venv cluster-up images ## all end-to-end tests, also those that are not part of make test
	$(SAY) "all end-to-end tests on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTEST) -s e2e $(ARGS)

.PHONY: rollback-live
rollback-live: venv cluster-up images ## end-to-end tests of the way back and of changes in dual-write, which are not part of make test (20 minutes)
	$(SAY) "the way back on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTEST) -s e2e/test_3_rollback.py $(ARGS)

.PHONY: dry-start-live
dry-start-live: venv cluster-up images ## end-to-end tests of the dry start, which are not part of make test (6 minutes)
	$(SAY) "dry start on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTEST) -s e2e/test_4_dry_start.py $(ARGS)

.PHONY: deletions-live
deletions-live: venv cluster-up images ## end-to-end test in which the operator's objects are deleted in four phases; results in benchmarks/measured/deletions (40 minutes; DELETIONS=claim,service restricts it)
	$(SAY) "deleted objects on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTEST) -s -x e2e/test_5_deleted.py $(ARGS)
	@mkdir -p benchmarks/measured/deletions && cp $(ARTIFACTS)/deletions/deletions.jsonl benchmarks/measured/deletions/$$(date -u +%Y%m%dT%H%M%SZ).jsonl && $(PYTHON) docs/generate.py

.PHONY: lost-quorum-live
lost-quorum-live: venv cluster-up images ## end-to-end test in which all controllers lose their volumes, and both ways out are taken (25 minutes)
	$(SAY) "a quorum that is lost for good, on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTEST) -s -x e2e/test_6_lost_quorum.py $(ARGS)

.PHONY: paths-live
paths-live: venv cluster-up images ## end-to-end test in which a NetworkPolicy keeps the controllers from the brokers, before the takeover and between two brokers (8 minutes)
	$(SAY) "closed ways from controllers to brokers, on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTEST) -s -x e2e/test_7_paths.py $(ARGS)

VENDOR ?=
.PHONY: e2e-layouts
e2e-layouts: venv cluster-up images ## VENDOR=DIR: vendors' charts and entrypoints, migrated or refused: what has no result yet (resumable; ARGS="bitnami-env --again")
	$(SAY) "layouts of other people's brokers, on the embedded Kubernetes"
	@test -n "$(VENDOR)" || { echo "VENDOR names the folder with the vendors' charts and images (docs/layouts.md)"; exit 1; }
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m e2e.layouts --vendor "$(abspath $(VENDOR))" $(ARGS); code=$$?; $(PYTHON) docs/generate.py; exit $$code

.PHONY: e2e-matrix
e2e-matrix: venv cluster-up images ## faults in every phase of a real migration: what has no result yet (hours; resumable); ARGS="--plan"
	$(SAY) "the matrix fault by phase, on the embedded Kubernetes"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m e2e.matrix $(ARGS); code=$$?; $(PYTHON) docs/generate.py; exit $$code

.PHONY: e2e-nodes
e2e-nodes: NODES := --nodes 3
e2e-nodes: venv cluster-up images ## migrations on three nodes, each with a node drained, cut off or lost in one phase: what has no result yet (10 to 25 minutes each; resumable; ARGS="--only drain@RollingBrokers --again")
	$(SAY) "troubles of nodes, on the embedded Kubernetes with three nodes"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m e2e.nodes $(ARGS); code=$$?; $(PYTHON) docs/generate.py; exit $$code

# ------------------------------------------------------------------------------------------------ cluster, demo

.PHONY: cluster-build
cluster-build: ## fetch and build the embedded Kubernetes and helm into the cache (minutes once, then nothing)
	$(SAY) "$(if $(KUBE_CONTEXT),nothing to build: a cluster is given by KUBE_CONTEXT,building the embedded Kubernetes in $(CACHE))"
	@$(if $(KUBE_CONTEXT),true,$(CLUSTER) build)

.PHONY: cluster-up
cluster-up: ## start the embedded Kubernetes, or whatever of it does not run
	$(SAY) "$(if $(KUBE_CONTEXT),using the cluster of context $(KUBE_CONTEXT),starting the embedded Kubernetes)"
	@$(if $(KUBE_CONTEXT),true,$(CLUSTER) up $(NODES))

.PHONY: cluster-down
cluster-down: ## stop the embedded Kubernetes and remove every trace but the cache
	$(SAY) "stopping the embedded Kubernetes"
	@$(CLUSTER) down

.PHONY: images
images: ## build all images and load them into the embedded cluster, or with KUBE_CONTEXT=kind-NAME into kind; REGISTRY=host/path pushes operator and verifier there
	$(SAY) "$(if $(REGISTRY),building operator and verifier for $(REGISTRY),$(if $(filter-out kind-%,$(KUBE_CONTEXT)),images are not built: the cluster of context $(KUBE_CONTEXT) needs to be able to pull them,building images))"
	@$(if $(REGISTRY),$(BASE_PYTHON) .ci/release.py images --registry "$(REGISTRY)" --push,$(if $(filter-out kind-%,$(KUBE_CONTEXT)),true,e2e/images/build $(patsubst kind-%,--kind %,$(KUBE_CONTEXT))))

.PHONY: release-dry-run
release-dry-run: ## what the release workflow does, without pushing: actionlint, version, images, chart, and that both agree (ARGS=--push)
	$(SAY) "release $(if $(REGISTRY),to $(REGISTRY),with an example's registry in the names)"
	@REGISTRY="$(REGISTRY)" $(BASE_PYTHON) .ci/release.py dry-run $(ARGS)

.PHONY: release-install-proof
release-install-proof: venv cluster-up ## push a release to an empty registry on this machine, install it with helm install oci://…, the node pulls (ARGS=--demo: then a migration and the hand-over)
	$(SAY) "release dry run, push, helm install oci://… on the embedded cluster"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m e2e.release $(ARGS)

.PHONY: release-base
release-base: ## print the base image of operator and verifier with its digest, as the release workflow pins it (needs docker and its registry)
	@$(BASE_PYTHON) .ci/release.py base

.PHONY: demo
demo: venv $(if $(KUBE_CONTEXT),,prerequisites) ## bring everything up and watch a ZooKeeper-based Kafka cluster become a KRaft one
	$(SAY) "the demonstration, on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m e2e.demo $(ARGS)

.PHONY: bench
bench: venv java ## speed of the verification beside its yardsticks
	$(SAY) "verification: figures, yardsticks, ratios, goals"
	@GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks verification --output benchmarks/measured/verification $(ARGS) # as Spark's Python workers run (open_session)

KAFKA_LIBRARIES = $${KAFKA_HOME:-$$(PYTHONPATH=$(CURDIR) $(PYTHON) -c 'from tests.support.kafka_processes import kafka_libraries; print(kafka_libraries())')}
.PHONY: bench-quorum
bench-quorum: venv java ## the same cluster on ZooKeeper, in dual-write and on KRaft (ARGS="--sizes 1000,10000 --rounds 3"; KAFKA_HOME=dir)
	$(SAY) "quorum benchmark: raw samples and the page in out/bench-quorum"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks quorum --kafka-home "$(KAFKA_LIBRARIES)" --output out/bench-quorum --html out/bench-quorum/page.html $(ARGS)

.PHONY: bench-fleet
bench-fleet: venv ## 100 idle, 100 unreachable and 10 rolling migrations on fakes: processor, memory, writes, health, steps; one of 200,000 partitions beside 10 hostile ones (16 minutes; ARGS="--only tenants")
	$(SAY) "fleet benchmark"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks fleet $(ARGS)

.PHONY: bench-batches
bench-batches: venv ## steps of a rolling restart of 60 brokers and 20,000 partitions in batches, and the time to choose one (seconds; ARGS="--most 12")
	$(SAY) "rolling restarts in batches"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks.batches $(ARGS)

.PHONY: bench-hundred
bench-hundred: venv ## what a step of the operator asks of 100 brokers with 200,000 partitions: time, requests, memory (2 minutes; ARGS="--brokers 50 --only Preflight")
	$(SAY) "a hundred brokers asked"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks.hundred $(ARGS)

.PHONY: bench-rehearsal
bench-rehearsal: venv java ## rehearsals of 330, 20,000 and 200,000 partitions: copy, sync, time without a controller, memory (ARGS="--sizes 1000000 --heap 4096")
	$(SAY) "rehearsals by size: rows and plot in benchmarks/measured/rehearsal"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks rehearsal --kafka-home "$(KAFKA_LIBRARIES)" --output benchmarks/measured/rehearsal $(ARGS)

.PHONY: bench-migration
bench-migration: venv cluster-up images ## migration time against the bare scripted procedure, interleaved pairs (half an hour; ARGS="--pairs N")
	$(SAY) "migration benchmark on $(or $(KUBE_CONTEXT),the embedded cluster)"
	@PYTHONPATH=$(CURDIR) $(PYTHON) -m e2e.bench $(ARGS)

.PHONY: clean
clean: ## remove caches and build products; keeps the environment and everything in the cache directory
	$(SAY) "removing build products and tools' caches"
	@rm -rf $(ARTIFACTS) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache metastore_db spark-warehouse
	@find operator tests e2e benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +
