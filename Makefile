# The verbs of the project. `make help` lists them; each does its own set-up.
PRESET ?= release
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)

.DEFAULT_GOAL := help
.PHONY: help setup build install test baseline check bench fuzz demo docs golden format clean

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

# A leading ~ is the shell's, which leaves it as it is behind PREFIX=.
PREFIX ?= /usr/local
prefix = $(abspath $(patsubst ~/%,$(HOME)/%,$(PREFIX)))
install: ## build and install the program, the library and its headers: make install PREFIX=/opt/colonnade
	@tools/setup.sh build
	$(call first,the program and the library,9)
	@$(configure) --target colonnade libcolonnade
	@cmake --install $(BUILD) --prefix "$(prefix)" >/dev/null
	@echo "install: $(prefix)/bin/colonnade; LibTorch stays in $(CURDIR)/.venv"

# OpenMP threads that wait sleep: several tests run at a time, and waiting in a loop takes most of the cores from all.
# One test more than cores, because end-to-end tests wait for processes; those with time limits run alone.
test baseline: export OMP_WAIT_POLICY := passive
test: ## build and run the tests; AREA=layout runs one area
	@tools/setup.sh test
	$(call first,$(if $(AREA),one area,everything),$(if $(AREA),2 to 10,12))
	@$(configure) $(if $(AREA),--target $(AREA)_test)
	@ctest --test-dir $(BUILD) -j $$(($(JOBS) + 1)) --output-on-failure --no-tests=error -LE 'gpu|long' $(if $(AREA),-R '^$(AREA)$$')

# The areas whose tests compare numbers of tensors; of job_test what trains without a plan beside it, and of its
# checkpoints, whose tests mostly compare bits, two with losses of other layouts and dtypes.
numeric := kernels tensor ops layers data_parallel pipeline optim
numeric_jobs := Checkpoint.GemmaLoads*:Checkpoint.Bf16Weights*:Layouts.LlamaAgrees:OneRank*:PerTokenLoss*:*HfParity*Tp1:*Trajectory*Tp1
baseline: export ATEN_CPU_CAPABILITY := default
baseline: export ONEDNN_MAX_CPU_ISA := SSE41
baseline: export MKL_CBWR := COMPATIBLE
baseline: ## run the numeric tests with baseline x86-64 instructions only: every processor must pass
	@tools/setup.sh test
	@cmake --preset $(PRESET) --log-level=WARNING -DCOLONNADE_SIMD=OFF
	@cmake --build $(BUILD) -j $(JOBS) --target $(numeric:%=%_test) job_test
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error -R '^($(subst $() ,|,$(numeric)))$$'
	@$(BUILD)/src/colonnade/job/job_test --gtest_brief=1 --gtest_filter='$(numeric_jobs)'

check: ## format, layers, names, sizes, links, words, and clang-tidy on what changed
	@tools/setup.sh check
	@tools/check_layers.py
	@tools/check_unity.py
	@tools/check_sizes.py
	@tools/check_links.py
	@tools/check_words.py
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

golden: build ## regenerate the golden files (a person looks at the difference)
	@tools/make_golden.sh $(BUILD)

format: ## apply clang-format to all sources
	@tools/check_format.sh --apply

clean: ## remove everything that was built
	rm -rf build
