# SPDX-License-Identifier: Apache-2.0
# The commands of the README, over CMake and its presets. Each installs what
# it needs by scripts/setup; SETUP=: leaves the machine as it is.
SETUP ?= scripts/setup
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local

.PHONY: help demo test bench install clean

help:
	@echo 'make demo     a MoE language model on 8 ranks of this machine, balanced'
	@echo 'make test     build and run all tests'
	@echo 'make bench    measure the shapes of docs/performance.md'
	@echo 'make install  library, tool, manual into PREFIX ($(PREFIX))'
	@echo 'make clean    remove build/'

demo:
	@$(SETUP) build
	@echo '# building into build/demo, without CUDA: a minute or two the first time'
	@scripts/build demo $(JOBS) ferry_tool
	@scripts/demo build/demo

test:
	@$(SETUP) build test
	@scripts/build dev $(JOBS)
	@scripts/run-tests build/dev

bench:
	@$(SETUP) build bench
	@scripts/build release $(JOBS)
	@scripts/bench build/release

install:
	@$(SETUP) build manual
	@scripts/build release $(JOBS)
	cmake --install build/release --prefix '$(PREFIX)'
	@# The loader finds a new library in its own folders by its cache.
	@[ -n "$$DESTDIR" ] || [ "$$(id -u)" != 0 ] || ldconfig

clean:
	rm -rf build
