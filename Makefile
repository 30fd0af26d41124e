# The verbs of the project. `make help` lists them; each does its own set-up.
PRESET ?= release
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)

.DEFAULT_GOAL := help
.PHONY: help setup build test check bench fuzz demo docs golden format clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:
	@tools/setup.sh build

# $(call first,what,minutes): a line before a build from nothing.
first = @[ -e $(BUILD)/colonnade ] || echo "build: compiling $(1) for the first time, about $(2) minutes on 2 cores"

configure = cmake --preset $(PRESET) --log-level=WARNING && cmake --build $(BUILD) -j $(JOBS)

build: setup ## set up this machine and build build/release/colonnade (PRESET=dev|cuda|asan|tsan for others)
	$(call first,everything,12)
	@$(configure)

test: ## build and run the tests; AREA=plan runs one area
	@tools/setup.sh test
	$(call first,$(if $(AREA),one area,everything),$(if $(AREA),2 to 10,12))
	@$(configure) $(if $(AREA),--target $(AREA)_test)
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -LE 'gpu|long' $(if $(AREA),-R '^$(AREA)$$')

check: ## format, layers, names, sizes, links, and clang-tidy on what changed
	@tools/setup.sh check
	@tools/check_layers.py
	@tools/check_unity.py
	@tools/check_sizes.py
	@tools/check_links.py
	@tools/check_format.sh
	@cmake --preset $(PRESET) --log-level=WARNING
	@tools/check_tidy.sh $(BUILD)

bench: ## measure this machine: our steps against the floor and against peers, tokenizers against theirs
	@tools/setup.sh bench
	$(call first,everything,12)
	@$(configure)
	@benchmarks/run.sh $(BUILD)
	@.venv/bin/python benchmarks/tokenizers/speed.py $(BUILD)

FUZZ_SECONDS ?= 60
fuzz: ## run each fuzz target for FUZZ_SECONDS=60: files that others make, under address and undefined-behaviour sanitizers
	@tools/setup.sh fuzz
	@cmake --preset fuzz --log-level=WARNING && cmake --build build/fuzz -j $(JOBS) --target fuzz_all
	@tools/fuzz.sh build/fuzz $(FUZZ_SECONDS)

demo: ## train a real model on real text over four processes, then show what came out (6 minutes after the build)
	@tools/setup.sh demo
	$(call first,the program,8)
	@$(configure) --target colonnade
	@tools/demo.sh $(BUILD)

docs: build ## write the generated pages of docs/reference
	@tools/make_docs.sh $(BUILD)

golden: build ## make the project's own golden files anew (a person looks at the difference)
	@tools/make_golden.sh $(BUILD)

format: ## apply clang-format to all sources
	@tools/check_format.sh --apply

clean: ## remove everything that was built
	rm -rf build
