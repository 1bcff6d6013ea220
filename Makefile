# From nothing but python3 >= 3.11, make and a C compiler (Triton builds its launcher with it).
#
#   make demo    train PPO and draw its learning curve          DEMO="--env Pendulum-v1 --seed 1"
#   make test    the test suite                                 PYTEST="-n 2 -m 'not slow'"
#   make lint    ruff and pyright
#   make docs    the documentation, into site/
#   make clean   remove the virtual environment
#
# Each prepares .venv first; when nothing changed since, that costs nothing.

PYTHON ?= python3
# The CUDA packages (gigabytes) are installed where there is an NVIDIA driver. CUDA= leaves them out.
CUDA ?= $(if $(shell command -v nvidia-smi 2>/dev/null),cuda13)
TORCH ?= torch
PEERS ?= peers
DEMO ?=
PYTEST ?= -n auto --maxprocesses 8 --dist worksteal --durations 12

VENV := .venv
BIN := $(VENV)/bin
comma := ,
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PACKAGE = --editable '.[$(1)$(if $(CUDA),$(comma)$(CUDA))]'
SETUP := pyproject.toml constraints.txt Makefile

.PHONY: demo test lint docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/examples.stamp
	$(BIN)/python examples/ppo.py $(DEMO)

test: $(VENV)/examples.stamp $(VENV)/test.stamp
	$(BIN)/python -m pytest $(PYTEST)

lint: $(VENV)/examples.stamp $(VENV)/test.stamp $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/pyright

docs: $(VENV)/test.stamp $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/examples.stamp: $(SETUP) | $(BIN)/python
	$(INSTALL) $(call PACKAGE,examples)
	touch $@

# torch is wanted by the tests of its front end, which skip without it. A build of torch can ask for another Triton than the
# one in constraints.txt; then it is left out. Where there is no CUDA, JAX's plugin alone, without the libraries it loads on
# a GPU, lets the tests lower the CUDA path on a CPU; XLA's compiler for GPUs goes where JAX does not take it for a backend.
$(VENV)/test.stamp: $(SETUP) | $(VENV)/examples.stamp
	$(INSTALL) $(call PACKAGE,test)
	$(if $(TORCH),$(INSTALL) $(TORCH),false) || echo "No torch that goes with constraints.txt: its tests will be skipped."
	$(if $(PEERS),$(INSTALL) $(call PACKAGE,$(PEERS)),false) || echo "Without the peers: drop-ins are tested against loops alone."
	$(if $(CUDA),,$(INSTALL) --no-deps jax-cuda13-plugin)
	$(if $(CUDA),,$(INSTALL) --no-deps --upgrade --target $(VENV)/pjrt jax-cuda13-pjrt || echo "Without XLA's compiler for GPUs.")
	touch $@

$(VENV)/dev.stamp: $(SETUP) | $(VENV)/test.stamp
	$(INSTALL) $(call PACKAGE,dev)
	touch $@

$(VENV)/docs.stamp: $(SETUP) | $(VENV)/test.stamp
	$(INSTALL) $(call PACKAGE,docs)
	touch $@
