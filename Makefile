# podslice: each target sets up its environment on a Debian machine with python3 and make.
#
#   make check   static checks, unit tests and cases: seconds, no root
#   make coverage    branch coverage of the pure core, which must be complete
#   make mutation    mutants of the pure core that no test kills (30 minutes or more);
#                MUTATION='podslice/policy/aggregate.py' mutates this file only
#   make bench   speed against the lower bound, and the effect on a real kernel (root, 25 minutes);
#                BENCH='planning steady' measures these only
#   make test    all tests, with a real systemd in namespaces and in a virtual machine (root)
#   make deb     build the package of this system into dist/ (root)
#   make debs    those of all releases of Debian and Ubuntu
#   make rpm     build the rpm into dist/ (root)
#   make ansible build the Ansible collection into dist/
#   make cockpit build the page for Cockpit into dist/cockpit (npm)
#   make lock    pin the newest versions of all dependencies, with their hashes
#   make man     generate manual pages and completions in build/
#   make demo    run the first session of the README in a private systemd (root)
#   make pictures    run the commands of the README in a virtual machine, and update their output
#                and the pictures (root)
#   make clean   remove the environment and the caches in this directory
#   make lab-clean   remove the images of the test lab, and leftovers of killed tests

PYTHON ?= python3
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(VENV)/bin/pip install -q --disable-pip-version-check

# otherwise each process that runs tests, or that tests start, compiles all of them again: 20 seconds
unexport PYTHONDONTWRITEBYTECODE

.PHONY: check coverage bench deb debs rpm ansible cockpit lock man mutation test demo pictures clean lab-clean

check: $(VENV)/ready
	@$(RUN) -m pytest -q -n auto tests/test_*.py tests/unit tests/cases

# the modules of tests/pure.py only compute, so that every branch can be tested
coverage: $(VENV)/ready
	@$(RUN) -m pytest -q -n auto --ignore=tests/unit/properties --cov --cov-report= \
	  tests/unit tests/cases
	@$(RUN) -m coverage report --include=$$($(RUN) -m tests.pure) --fail-under=100

mutation: $(VENV)/ready
	@$(RUN) -m tests.mutation $(MUTATION)

bench: $(VENV)/ready
	@$(SUDO) $(RUN) -m tests.bench $(BENCH)

deb: $(VENV)/ready
	@$(SUDO) $(RUN) packaging/build.py deb

debs: $(VENV)/ready
	@$(SUDO) $(RUN) packaging/build.py debs

rpm: $(VENV)/ready
	@$(SUDO) $(RUN) packaging/build.py rpm

ansible: $(VENV)/ready
	@$(RUN) packaging/build.py ansible

cockpit: $(VENV)/ready
	@$(RUN) packaging/build.py cockpit

lock: $(VENV)/ready
	@$(RUN) packaging/build.py lock

man: $(VENV)/ready
	@$(RUN) packaging/generate.py build

test: $(VENV)/ready
	@$(SUDO) $(RUN) -m tests.everything

demo: $(VENV)/ready
	@$(SUDO) $(RUN) -m tests.lab.demo

pictures: $(VENV)/ready
	@$(SUDO) $(RUN) -m tests.readme

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

lab-clean: $(VENV)/ready
	$(SUDO) $(RUN) -m tests.lab clean --all

# Debian's python3 does not include venv; pip installs the rest as pinned in requirements-dev.txt. The
# list is complete: with --no-deps, a newer release that an extra would admit is not considered
$(VENV)/ready: pyproject.toml requirements-dev.txt
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { \
	  $(SUDO) apt-get update -qq && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    python3-venv >/dev/null && \
	  $(PYTHON) -m venv --clear $(VENV); }
	@$(PIP) --no-deps --require-hashes --requirement requirements-dev.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@
