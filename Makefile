# The only entry points, the same by hand and in CI. `make help` lists them.
# Each target sets up what it needs by itself, without root: see tools/bootstrap.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# Where no byte code is written, each start of a part compiles all that it imports: more than half of the start.
unexport PYTHONDONTWRITEBYTECODE

PYTHON := .venv/bin/python
UV := $(shell command -v uv 2>/dev/null || echo .cache/uv/bin/uv)

# The C compiler: zig, from the lock file, targeting the oldest glibc that pods still bring along.
ARCH := $(shell uname -m)
# The folder for all that C makes. Wheels take theirs from folders of their own, one for each machine.
BUILD := build
ZIG_TARGET := $(ARCH)-linux-gnu.2.17
ZIG := $(wildcard .venv/lib/python3.*/site-packages/ziglang/zig)
CC_PORTABLE := $(ZIG) cc -target $(ZIG_TARGET)
DEBUG := -g
LINK_FLAGS :=
C_FLAGS := -std=c11 -O2 $(DEBUG) -fPIC -fvisibility=hidden -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
# The real headers, from NVIDIA's own packages in the lock file.
CUDA12_INCLUDE := $(wildcard .venv/lib/python3.*/site-packages/nvidia/cuda_runtime/include)
CUDA13_INCLUDE := $(wildcard .venv/lib/python3.*/site-packages/nvidia/cu13/include)
NVML_INCLUDE := $(wildcard .venv/lib/python3.*/site-packages/nvidia/nvml_dev/include)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 20

.venv/.synced: pyproject.toml uv.lock tools/bootstrap tools/uv.txt
	@tools/bootstrap
	@touch $@

# The include paths above exist only once the environment does, so C is built by a second make.
.PHONY: native
native: .venv/.synced ## build the preload library, the emulator, and the tests' programs in C
	+@MAKE="$(MAKE)" tools/compile

.PHONY: libraries
libraries:
	@:
include emulator/build.mk
include hook/lib/build.mk
include tests/build.mk

# The files of a wheel, for the machine $(ARCH).
.PHONY: packed
packed: $(HOOK)/libplimsoll.so $(EMULATOR)/libcuda.so.1 $(EMULATOR)/libnvidia-ml.so.1 $(EMULATOR)/book $(BUILD)/bin/busy
	@:

.PHONY: demo
demo: native ## three emulated nodes, a dozen pods, a live page, one minute; with KEEP=1 pods come and go until Ctrl-C
	@$(PYTHON) -m plimsoll demo $(if $(KEEP),--keep)

# Most of the tests' time is waiting for processes, leases and clocks: six workers keep two cores busy.
WORKERS ?= 6

# The live page is tried in Debian's Chromium, and `plimsoll top` in tmux. On a machine that has none and cannot install
# it, these tests are skipped, but never in CI.
.PHONY: test
test: native ## the tests, on real NATS, Valkey and kube-apiserver; PART=placer for those of one part; WORKERS=3
	@$(PYTHON) -m tests.cluster.build
	@$(PYTHON) -m tests.servers.debian
	@command -v chromium >/dev/null || tools/debian-packages chromium fonts-dejavu-core || [ -z "$$CI" ]
	@command -v tmux >/dev/null || tools/debian-packages tmux || [ -z "$$CI" ]
	@[ -d tests/__pycache__ ] || $(MAKE) --no-print-directory collected
	@$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(if $(PART),tests/$(PART))

# All builds are here, before pytest: a test that builds would need minutes that its time limit does not have.
.PHONY: test-all
test-all: native ## what `make test` leaves out: sanitizers, long histories, all drawn examples, a wheel; WORKERS=3
	+@$(MAKE) --no-print-directory build/programs/subscriber
	@$(PYTHON) -m tests.hook.lib.sanitized
	@$(PYTHON) -m tests.cluster.build
	@$(PYTHON) -m tests.servers.debian
	@$(PYTHON) -m pytest -m "(slow or hypothesis) and not gpu and not node" --hypothesis-profile=whole -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# In a new clone no file is compiled yet, and each worker would compile all of them at the same time. The run itself
# reports a file that cannot be imported.
.PHONY: collected
collected:
	@$(PYTHON) -m pytest --quiet --collect-only tests/placer >/dev/null & \
		$(PYTHON) -m pytest --quiet --collect-only tests --ignore tests/placer >/dev/null || true; wait

# Without debugging information, which would name this folder: two folders then make the same bytes.
.PHONY: wheel
wheel: .venv/.synced ## wheels for x86-64 and aarch64, with library and emulator, in build/wheels
	@rm -rf build/wheels
	@for machine in x86_64 aarch64; do \
		$(MAKE) --no-print-directory packed ARCH=$$machine BUILD=build/packed/$$machine DEBUG=-g0 LINK_FLAGS=-Wl,--strip-debug; \
		$(PYTHON) -m tools.sbom build/packed/$$machine >build/packed/$$machine/plimsoll.cdx.json; \
		PLIMSOLL_WHEEL_FILES=build/packed/$$machine $(PYTHON) -m hatchling build --target wheel --directory build/wheels; \
	done

# The address below which the files of a release would be published; krew's manifest names it.
URL := https://example.com/plimsoll

.PHONY: release
release: .venv/.synced ## wheels, chart, kubectl plugin, bills of materials and checksums in build/release; publishes nothing; URL=https://…
	@$(PYTHON) -m tools.release "$(URL)" --check
	@$(MAKE) --no-print-directory wheel
	@$(PYTHON) -m tools.release "$(URL)"

.PHONY: wheel-check
wheel-check: wheel ## the wheels in clean environments, on the oldest and the newest Python; PYTHONS="PATH PATH"
	@$(PYTHON) -m tests.package $(PYTHONS)

.PHONY: sbom
sbom: native ## the bill of materials (CycloneDX) of this machine's files, in build/sbom; wheels have theirs in them
	@mkdir -p build/sbom
	@$(PYTHON) -m tools.sbom build >build/sbom/plimsoll.cdx.json
	@echo "plimsoll: written: build/sbom/plimsoll.cdx.json"

# uv asks osv.dev, which has the advisories of PyPI's packages too. All groups of dependencies, because tools that
# build and test count as well.
.PHONY: audit
audit: .venv/.synced ## the locked packages against known advisories; needs the internet
	@$(UV) audit --frozen --preview-features audit

.PHONY: e2e
e2e: native ## whole clusters end to end, with kill -9 in the middle
	@$(PYTHON) -m tests.cluster.build
	@$(PYTHON) -m pytest -n auto -m "not gpu and not node" tests/e2e

.PHONY: e2e-kube
e2e-kube: native ## a real kubelet and containerd, our images and chart, emulated GPUs; needs root; TESTS=tests/node/test_lines.py
	@$(PYTHON) -m tests.node $(TESTS)

# The images of tests have a base of Debian's packages, as no registry is needed then.
.PHONY: node-images
node-images: wheel
	@tools/image-base
	@tools/images localhost/plimsoll-base:bookworm $(if $(filter aarch64,$(ARCH)),arm64,amd64)

.PHONY: images
images: wheel ## images for amd64 and arm64 from the wheels, in build/images; BASE=python:3.11-slim@sha256:…
	@tools/images "$(BASE)" amd64 arm64

.PHONY: chaos
chaos: native ## two placers and all servers under random faults for ten minutes; SECONDS=60 SEED=7 PLACERS=1 WITHOUT=edits LABELS=1
	@$(PYTHON) -m tests.cluster.build
	@$(PYTHON) -m tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(PLACERS),--placers $(PLACERS)) $(if $(WITHOUT),--without "$(WITHOUT)") $(if $(ONLY),--only "$(ONLY)") $(if $(LABELS),--labels)

.PHONY: gpu
gpu: native ## what only a real GPU can show; fails where there is none
	@$(PYTHON) -m pytest -m gpu tests/gpu

# Folders of C, and Python packages, in which no files may depend on each other in a circle.
WITHOUT_CIRCLES := hook/lib emulator bench/hook/share/task
PACKAGES := plimsoll plimsoll_cli plimsoll_alerts monitor placer solo hook simulator

.PHONY: check
check: native ## format, lint, types, import contracts, circles among files, spelling, documents
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy
	@.venv/bin/lint-imports --no-cache
	@$(PYTHON) -m tools.circles $(WITHOUT_CIRCLES)
	@$(PYTHON) -m tools.imports $(PACKAGES)
	@.venv/bin/codespell
	@$(PYTHON) -m mkdocs build 2>&1 | { grep -v '^INFO' || true; } # with --quiet, no warning would fail it
	@git ls-files '*.c' '*.h' | xargs --no-run-if-empty .venv/bin/clang-format --dry-run --Werror

.PHONY: docs
docs: .venv/.synced ## the documents as a site with a search, on http://127.0.0.1:8000, until Ctrl-C
	@$(PYTHON) -m mkdocs serve --dev-addr 127.0.0.1:8000

.PHONY: format
format: .venv/.synced ## rewrite the sources as `make check` wants them
	@$(PYTHON) -m ruff format .
	@$(PYTHON) -m ruff check --fix .
	@git ls-files '*.c' '*.h' | xargs --no-run-if-empty .venv/bin/clang-format -i

.PHONY: bench-kang
bench-kang: native ## Kang et al., Tables IV and V: free slots against Plimsoll
	@$(PYTHON) -m bench.kang

.PHONY: bench-kang-card
bench-kang-card: native ## Kang et al., Table I: 23, 24 and 25 tasks on one card, without Plimsoll and under it; under 5 minutes
	@$(PYTHON) -m bench.kang.card

.PHONY: bench-events
bench-events: native ## how soon the placer's list knows of a started task
	@$(PYTHON) -m bench.events

.PHONY: bench-monitor
bench-monitor: native ## the monitor's costs, delays, savings and truth; 25 minutes, QUICK=1 under 5
	@$(PYTHON) -m bench.monitor $(if $(QUICK),--quick)

.PHONY: bench-hook-memory
bench-hook-memory: native ## what the memory line costs an allocation, a launch, a start; and that it holds
	@$(PYTHON) -m bench.hook.memory

.PHONY: bench-convgpu
bench-convgpu: native ## ConVGPU, Tables IV and V: four wait policies, replayed, and in small on the emulator
	@$(PYTHON) -m bench.convgpu

.PHONY: bench-hook-share
bench-hook-share: native ## compute shares: accuracy, progress, latency, costs; half an hour, QUICK=1 under 5 minutes
	@$(PYTHON) -m bench.hook.share $(if $(QUICK),--quick)

.PHONY: bench-placer
bench-placer: native ## the placer beside stock kube-scheduler, and its decisions at 20 000 nodes; QUICK=1 under 5 minutes; PART=n1000
	@$(PYTHON) -m bench.placer $(if $(QUICK),--quick) $(PART:%=--part %)

# The traces are not part of the project: Alibaba's cluster-trace-gpu-v2023, with the published figures beside the lists.
TRACES := ../shared/traces

.PHONY: bench-policies
bench-policies: .venv/.synced ## placement policies on openb traces beside published figures; TRACES=folder; RESULTS=file to go on; QUICK=1
	@$(PYTHON) -m bench.policies "$(TRACES)" $(if $(QUICK),--quick) $(if $(RESULTS),--results "$(RESULTS)")

.PHONY: bench-webhook
bench-webhook: .venv/.synced ## the webhook's answers at 200 reviews a second over TLS; QUICK=1 under half a minute
	@$(PYTHON) -m bench.webhook $(if $(QUICK),--quick)

.PHONY: bench-contract
bench-contract: native ## the placer against kube-scheduler on 500 random clusters; QUICK=1 for 60
	@$(PYTHON) -m bench.contract $(if $(QUICK),--quick)

.PHONY: bench-dashboards
bench-dashboards: native ## every query of dashboards and rules, in a real Prometheus over a demo; QUICK=1 under two minutes
	@$(PYTHON) -m bench.dashboards $(if $(QUICK),--quick)

.PHONY: bench-e2e
bench-e2e: native ## pods of ours beside default-scheduler's on one real kubelet, and a whole program; as root; QUICK=1 under 5 minutes
	@$(PYTHON) -m bench.e2e $(if $(QUICK),--quick) $(PART:%=--part %) $(COUNT:%=--count %)

.PHONY: bench
bench: bench-kang bench-kang-card bench-events bench-monitor bench-hook-memory bench-hook-share bench-convgpu bench-placer bench-webhook bench-contract bench-dashboards ## every benchmark but bench-e2e, which needs root

.PHONY: chart
chart: .venv/.synced ## write the manifests that are generated from deploy/chart
	@$(PYTHON) -m tools.chart

.PHONY: size
size: .venv/.synced ## lines of code by folder, without blanks, comments and docstrings; and the number of settings
	@$(PYTHON) -m tools.size

.PHONY: clean
clean: ## remove what was built; keeps the caches
	@rm -rf build
