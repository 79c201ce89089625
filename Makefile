# The commands for developers. CI runs the same commands. YES=1 installs packages without a prompt.

BIN := .venv/bin
SET_UP := sh services/harebell/dev/bootstrap.sh
# The RabbitMQ version for tests: make test BROKER=4.3. An empty value selects the installed version.
BROKER :=
NEWEST := 4.3
export YES BROKER

# Run a command and print its output only after a failure.
quietly = said=$$($(1) 2>&1) || { printf '%s\n' "$$said"; exit 1; }

# A RabbitMQ version that is not installed runs in a separate Debian tree.
tree = needed=$$($(BIN)/python -m tests.rig.broker_versions) && \
	sh tests/rig/debian_root.sh $$needed

.PHONY: help demo test selection chaos bench check down
.NOTPARALLEL:

help:
	@echo "make demo    set up, start everything on this machine and watch it work"
	@echo "make test    set up, check, and run the whole suite"
	@echo "make test BROKER=4.3   the same on another release of RabbitMQ: 4.0, 4.3"
	@echo "make selection BROKER=4.3   only the tests that depend most on the release"
	@echo "make chaos   break a stack of its own in every way and judge it: SEEDS=n ROWS=6,10b OUTAGE=5s"
	@echo "make bench   measure what a run costs and how late it starts: ONLY=stampede,http FULL=1 OUT=file;"
	@echo "             PEERS=1 measures Celery and BullMQ in turn with it"
	@echo "make check   lint, format, types, import rules: silent when all is well"
	@echo "make down    stop what demo left running"

demo:
	@$(SET_UP) servers
	@$(BIN)/python -m harebell.dev.demo

test:
	@$(SET_UP) tests
	@$(call tree)
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest -n 2 --ignore tests/acceptance --ignore tests/chaos
	@$(BIN)/python -m pytest -n 3 --dist loadfile tests/acceptance tests/chaos -m "not chaos"
	@[ -n "$(BROKER)" ] || [ "$$(id -u)" != 0 ] || \
		$(MAKE) --no-print-directory selection BROKER=$(NEWEST)

selection:
	@$(SET_UP) tests
	@$(call tree)
	@$(BIN)/python -m pytest -m broker_version

SEEDS := 1
chaos:
	@$(SET_UP) servers
	@[ -n "$(ROWS)$(SOAK)" ] || $(BIN)/python -m pytest -m chaos
	@$(BIN)/python -m tests.chaos --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) \
		$(if $(ROWS),--rows $(ROWS)) $(if $(OUTAGE),--outage $(OUTAGE)) $(if $(OUT),--out $(OUT)) \
		$(if $(SOAK),--soak $(SOAK)) $(if $(EVERY),--every $(EVERY))

bench:
	@$(SET_UP) $(if $(PEERS),peers,servers)
	@$(BIN)/python -m tests.benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(FULL),--full) \
		$(if $(PEERS),--peers) $(if $(OUT),--out $(OUT))

check:
	@$(SET_UP)
	@$(call quietly,$(BIN)/ruff check)
	@$(call quietly,$(BIN)/ruff format --check)
	@$(call quietly,$(BIN)/mypy)
	@$(call quietly,$(BIN)/lint-imports)

down:
	@[ ! -x $(BIN)/harebell ] || $(BIN)/harebell dev stop
