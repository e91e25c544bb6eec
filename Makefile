# make help lists the targets. Both executables are built into ./bin, side by side: knoot becomes knootd for all but hooks.

.DEFAULT_GOAL := help

# Ordered by the time of the commit, so that a newer build takes over from an older daemon.
RELEASE   := $(shell sed -n 's/^const release = "\(.*\)"$$/\1/p' daemon/socket/version.go)
COMMITTED := $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S 2>/dev/null)
COMMIT    := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
VERSION   ?= $(RELEASE)-dev$(if $(COMMITTED),.$(COMMITTED)+$(COMMIT))

GO        ?= go
PREFIX    ?= $(HOME)/.local
FUZZTIME  ?= 10m
SHELL_LINES ?= 5000
BUILD     := -trimpath -ldflags '-X knoot.dev/knoot/daemon/socket.Version=$(VERSION)'

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

.PHONY: build
build: ## build knoot and knootd into ./bin
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build $(BUILD) -o bin/ ./cmd/knoot ./cmd/knootd

.PHONY: demo
demo: build ## play people's agents in a throw-away folder, and check what is shown (then: bin/knoot demo --relay)
	@bin/knoot demo

.PHONY: check
check: format vet ## all that CI checks: format, vet, staticcheck, every test with the race detector
	$(GO) test -race -timeout 15m ./...

.PHONY: format
format:
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet:
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

.PHONY: test
test: ## every test, without the race detector
	$(GO) test ./...

.PHONY: rounds
rounds: ## two admins change the team at the same moment, 50 times
	KNOOT_ROUNDS=50 $(GO) test ./gitlog -run TestTwoAdminsAtOnce -count=1 -timeout 30m

.PHONY: race
race: ## sixteen hooks ask for one file at the same instant, 500 times
	KNOOT_ROUNDS=500 $(GO) test ./integration -run TestOneOfManyHooksAtTheSameInstantIsAllowed -count=1 -v -timeout 30m

.PHONY: chaos
chaos: ## a relay under load is killed 200 times, and 50 times under daemons at work; nothing that anybody heard is missing
	KNOOT_ROUNDS=200 $(GO) test ./arbiter/relay -run TestKilledAgainAndAgain -count=1 -v -timeout 30m
	KNOOT_ROUNDS=50 $(GO) test ./integration -run TestARelayIsKilledUnderDaemons -count=1 -v -timeout 30m

.PHONY: blind
blind: ## a day's words, looked for in all that a relay has and shows
	$(GO) test ./arbiter/relay -run TestTheRelayLearnsNothing -count=1 -v
	$(GO) test ./integration -run TestARelaySeesNothingOfADay -count=1 -v

.PHONY: hostile
hostile: ## 10,000 connections that want into a relay, or want others out
	KNOOT_HOSTILE=10000 $(GO) test ./arbiter/relay -run TestAHostileCrowd -count=1 -v

.PHONY: soak
soak: ## a relay under full load, and one with daemons at work, for KNOOT_SOAK (1h) each: their memory does not grow
	KNOOT_SOAK=$${KNOOT_SOAK:-1h} $(GO) test ./arbiter/relay -run TestMemoryDoesNotGrow -count=1 -v -timeout 25h
	KNOOT_SOAK=$${KNOOT_SOAK:-1h} $(GO) test ./integration -run TestSteadyWorkNeedsNoMoreMemory -count=1 -v -timeout 25h

.PHONY: replay
replay: ## a session of 1,000 turns among 20 others: what it is told, in figures
	KNOOT_TURNS=1000 $(GO) test ./daemon -run TestALongSessionAmongMany -count=1 -v -timeout 30m

.PHONY: shell
shell: ## command lines that are made up, run by bash and compared with what was said of them (SHELL_LINES, 5000)
	KNOOT_SHELL=$(SHELL_LINES) $(GO) test ./hook/shell -run TestBashChangesNothingElse -count=1 -v -timeout 4h

.PHONY: bench
bench: ## the benchmarks; each says its budget
	$(GO) test -run '^$$' -bench . -benchmem -timeout 30m ./...

.PHONY: fuzz
fuzz: ## every fuzz target in turn, FUZZTIME each (10m)
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	for folder in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
		$(GO) test -c -fuzz . -o "$$work/fuzz.test" $$folder; \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$folder/*_test.go | cut -c6-); do \
			echo "$$folder $$target"; \
			(cd $$folder && "$$work/fuzz.test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 2s \
				-test.fuzzcachedir "$$($(GO) env GOCACHE)/fuzz/knoot.dev/knoot/$$folder"); \
		done; \
	done

.PHONY: agents
agents: ## real Claude Code and Codex, fetched through npm, run offline against a scripted model: a table by scenario
	integration/agents/fetch.sh
	$(GO) test -count=1 -v -timeout 20m ./integration/agents

.PHONY: mcp
mcp: ## MCP clients that other people wrote, fetched through npm, and the real agents, at a real daemon: a table by client and scenario
	@integration/clients/fetch.sh || echo "the clients are not here: the table says skipped"
	@integration/agents/fetch.sh || echo "the agents are not here: the table says skipped"
	$(GO) test -count=1 -v -timeout 20m ./integration/clients

.PHONY: record
record: ## record what the real agents send to hooks, into integration/agents/testdata: a diff to read for a new version
	integration/agents/fetch.sh
	KNOOT_RECORD=1 $(GO) test -count=1 -v ./integration/agents -run TestPayloadsLookAsRecorded

.PHONY: install
install: build ## copy both executables to PREFIX/bin (~/.local/bin)
	@mkdir -p '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 bin/knoot bin/knootd '$(DESTDIR)$(PREFIX)/bin'

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
