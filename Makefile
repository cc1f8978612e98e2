# lockrun: build, check and measure. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GO      ?= go
PREFIX  ?= /usr/local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# urfave_cli_no_docs leaves out a documentation generator that costs 2 ms at every start;
# netgo and osusergo keep name look-ups out of libc, so that the binary can be linked statically.
TAGS := urfave_cli_no_docs sqlite_omit_load_extension netgo osusergo
LDFLAGS := -s -w -X main.version=$(VERSION)

# musl's start asks the processor nothing. glibc's asks it dozens of times about its caches, and on a virtual machine each
# question is a trip to the hypervisor: measured, 0.6 ms of each start.
ifeq ($(origin CC),default)
BUILD_CC := $(firstword $(shell command -v musl-gcc || command -v cc || command -v gcc))
else
BUILD_CC := $(CC)
endif

# Static where this machine's linker can do it. A build without a C compiler is static by itself. musl gives threads the
# stack that the linker says, or else 128 KB, which SQLite is not made for.
CAN_STATIC := $(shell d=$$(mktemp -d) && echo 'int main(void){return 0;}' >$$d/a.c && \
	$(or $(BUILD_CC),false) -static -o $$d/a $$d/a.c 2>/dev/null && echo yes; rm -rf "$$d")
ifeq ($(CAN_STATIC),yes)
STATIC := -linkmode external -extldflags "-static -Wl,-z,stack-size=1048576"
endif

# Extra flags for go test: make test TESTFLAGS=-v
TESTFLAGS ?=
# Extra flags for the attacks: make torture TORTUREFLAGS='-on redis -seed 7'
TORTUREFLAGS ?=
# Extra flags for the comparison: make bench-peers PEERSFLAGS='-only frozen,killed -faults 5'
PEERSFLAGS ?=
# The tests that repeat, for make cases: see internal/rounds.
CASES := TestConformance/Release/many_rounds|TestConformance/./Release/many_rounds|TestFirstStartsAtOneInstant|TestOneOfFifty
CASES := $(CASES)|TestManyInitAtOnce|Crowd$$|TestPIDOneReaps|TestThreadsComeAndGo|TestEmbedded|TestScripts/^pid1$$
CASES := $(CASES)|TestServers/^(crowd|short|first_runs|waiters_run)
comma := ,
space := $(subst ,, )
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck

.PHONY: build static-pure install test lint needs fmt vet staticcheck tidy vulncheck race purego cross cases bench bench-servers bench-peers dist package-test torture mutants clean help

build: ## lockrun for this machine, static where possible (apt install musl-tools makes it start faster)
	CC='$(BUILD_CC)' $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS) $(STATIC)' -o lockrun .

static-pure: ## the same without a C compiler (SQLite in Go: larger, slower to start)
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o lockrun .

install: build ## into $(PREFIX)/bin
	install -D -m 0755 lockrun $(DESTDIR)$(PREFIX)/bin/lockrun

test: needs lint race purego cross ## everything that has to pass

lint: fmt vet staticcheck tidy vulncheck ## what needs no test run

needs: # what the tests use beside Go: installed where that is allowed, else named
	@scripts/install-test-needs

fmt:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }

vet:
	$(GO) vet -tags '$(TAGS)' ./...

staticcheck:
	$(STATICCHECK) -tags '$(subst $(space),$(comma),$(TAGS))' ./...

tidy:
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd tools/manifests && $(GO) mod tidy -diff

vulncheck: # needs the vulnerability database; says so and goes on where it cannot be reached
	@scripts/vulncheck '$(subst $(space),$(comma),$(TAGS))'

race:
	GO='$(GO)' scripts/go-test -race -count=1 -tags '$(TAGS)' $(TESTFLAGS) ./...

purego: # the build without a C compiler: its SQLite driver, its way of starting children, and a smoke test of the whole
	CGO_ENABLED=0 GO='$(GO)' scripts/go-test -count=1 -short -tags '$(TAGS)' $(TESTFLAGS) ./backends/sqlite ./internal/supervise
	CGO_ENABLED=0 GO='$(GO)' scripts/go-test -count=1 -tags '$(TAGS)' $(TESTFLAGS) -run 'TestScripts/(smoke|kill9|exitcodes)$$' ./testscripts

cross: # other systems compile; Windows is refused by name
	@scripts/cross-compile '$(TAGS)'

cases: ## public fault reports, repeated as often as each took to show
	LOCKRUN_TEST_ROUNDS=full $(GO) test -count=1 -p 1 -timeout 0 -tags '$(TAGS)' $(TESTFLAGS) -run '$(CASES)' ./backends/... ./internal/supervise ./testscripts

bench: build ## ratios against flock, as bench/README.md tells them
	$(GO) run ./bench -lockrun ./lockrun

bench-servers: build ## the same on real Redis and MariaDB servers, beside what these can do at all
	CC='$(BUILD_CC)' $(GO) run -tags '$(TAGS)' ./bench/servers -lockrun ./lockrun -tags '$(TAGS)' -ldflags '$(LDFLAGS) $(STATIC)'

bench-peers: build ## lockrun beside flock, etcdctl, SET NX, Redisson, ShedLock and Curator, with their real servers
	CC='$(BUILD_CC)' $(GO) run -trimpath -tags '$(TAGS)' ./bench/peers -lockrun ./lockrun $(PEERSFLAGS)

dist: ## archives, deb, rpm, apk, checksums and bills of materials for all systems, unpublished, into dist/
	cd packaging && $(GO) build -o ../dist-tools/ github.com/goreleaser/goreleaser/v2
	dist-tools/goreleaser release --snapshot --clean

package-test: ## packages of this commit: equal when built twice, installed into a clean root, run, purged
	scripts/package-test

torture: build ## attack lockrun on every store, 10,000 grants each (TORTUREFLAGS='-on redis -seed 7'); docs/torture.md
	CC='$(BUILD_CC)' $(GO) run -tags '$(TAGS)' ./torture -lockrun ./lockrun $(TORTUREFLAGS)

mutants: ## prove that the attack finds lockruns that are broken on purpose
	CC='$(BUILD_CC)' $(GO) run -tags '$(TAGS)' ./torture -mutants -ldflags '$(LDFLAGS) $(STATIC)' $(TORTUREFLAGS)

clean:
	rm -rf lockrun dist dist-docs dist-tools bench/out

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' Makefile
