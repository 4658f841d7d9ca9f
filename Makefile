# Every target sets up its own virtual environment from nothing. `make help` lists them.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
DEV := .venv
SERVE := .venv-serve
# Where the parallel text lies that `make train` reads, and what it does with it (see docs/training.md).
CORPORA ?= corpora/pt-en
RECIPE ?= model/recipes/pt-en.toml
RUN ?= runs/pt-en
PROCESSES ?= 2
TRAIN_OPTIONS ?=
# Sentences for the benchmarks, one a line (without it: the tests' own), and the revision that `bench-compare` looks back to.
SOURCES ?=
BASE ?= HEAD~1
COMPARE_OPTIONS ?=

.PHONY: help serve test test-full lint types unit format train bench bench-full bench-compare soak split-check screenshots demo-metrics deploy-checks clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

$(SERVE)/.ready: pyproject.toml setup.py Makefile
	$(PYTHON) -m venv $(SERVE)
	$(SERVE)/bin/pip install --quiet --upgrade pip
	$(SERVE)/bin/pip install --quiet --editable '.[cpu]'
	touch $@

$(DEV)/.ready: pyproject.toml setup.py Makefile
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/pip install --quiet --upgrade pip
	$(DEV)/bin/pip install --quiet --editable '.[cpu,import,train,bench,tracing]' --group dev
	touch $@

serve: $(SERVE)/.ready  ## serve the embedded bundles on HOST:PORT (127.0.0.1:8000)
	$(SERVE)/bin/dragoman serve --host $(HOST) --port $(PORT)

test: lint types unit  ## everything: lint, format, types, tests

lint: $(DEV)/.ready  ## ruff and format check
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .

types: $(DEV)/.ready  ## mypy, strict
	mkdir -p build/names/dragoman && ln -sfn $(CURDIR)/service $(CURDIR)/export $(CURDIR)/model build/names/dragoman/
	$(DEV)/bin/mypy

unit: $(DEV)/.ready  ## the tests alone
	OMP_NUM_THREADS=1 $(DEV)/bin/python -m pytest -n 2 --dist loadfile

test-full: lint types  ## everything, with the tests that take long
	OMP_NUM_THREADS=1 $(DEV)/bin/python -m pytest -n 2 --dist loadfile -m ''

format: $(DEV)/.ready  ## put the code in order
	$(DEV)/bin/ruff check --fix .
	$(DEV)/bin/ruff format .

train: $(DEV)/.ready  ## train or resume on both cores: CORPORA=dir RECIPE=file RUN=runs/pt-en TRAIN_OPTIONS=...
	OMP_NUM_THREADS=1 nice -n 10 $(DEV)/bin/torchrun --nproc-per-node $(PROCESSES) -m dragoman.model.train $(RUN) \
	  --recipe $(RECIPE) --text $(CORPORA) $(TRAIN_OPTIONS)

demo-metrics: $(DEV)/.ready  ## serve, put load on it, watch it with a real Prometheus; draws build/dashboard.png
	$(DEV)/bin/python -m deploy.demo

deploy-checks: $(DEV)/.ready  ## build and run the image, lint the manifests, restart two replicas under load
	PYTHON=$(DEV)/bin/python deploy/checks.sh

screenshots: $(DEV)/.ready  ## take the README's pictures of the page again, with the embedded bundles
	$(DEV)/bin/python docs/screenshots.py

bench: $(DEV)/.ready  ## the benchmarks, roughly, in 5 minutes: SOURCES=file of sentences; page in bench/report
	$(DEV)/bin/python -m bench quick $(if $(SOURCES),--sources $(SOURCES))

bench-full: $(DEV)/.ready  ## the benchmarks as they are to be quoted; leave the machine alone meanwhile
	$(DEV)/bin/python -m bench full $(if $(SOURCES),--sources $(SOURCES))

bench-compare: $(DEV)/.ready  ## this tree against another revision, alternately: BASE=rev COMPARE_OPTIONS=...
	$(DEV)/bin/python -m bench.compare $(BASE) $(if $(SOURCES),--sources $(SOURCES)) $(COMPARE_OPTIONS)

soak: $(DEV)/.ready  ## 200 clients for 60 s, every answer compared with the lonely one
	$(DEV)/bin/python -m tests.api.soak --seconds 60

split-check: $(DEV)/.ready  ## a million generated strings split and join back
	$(DEV)/bin/python -m tests.translation.bulk_split --count 1000000

clean:  ## remove the virtual environments and caches
	rm -rf $(DEV) $(SERVE) .pytest_cache .mypy_cache .ruff_cache build *.egg-info
