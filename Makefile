# The few commands people type; CI runs the same ones. YES=1 installs without asking.

BIN := .venv/bin
SET_UP := sh services/harebell/dev/bootstrap.sh
export YES

# Run a command and show what it says only if it fails.
quietly = said=$$($(1) 2>&1) || { printf '%s\n' "$$said"; exit 1; }

.PHONY: help demo test check down
.NOTPARALLEL:

help:
	@echo "make demo    set up, start everything on this machine and watch it work"
	@echo "make test    set up, check, and run the whole suite"
	@echo "make check   lint, format, types, import rules: silent when all is well"
	@echo "make down    stop what demo left running"

demo:
	@$(SET_UP) servers
	@$(BIN)/python -m harebell.dev.demo

test:
	@$(SET_UP) tests
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest -n 2 --ignore tests/acceptance
	@$(BIN)/python -m pytest tests/acceptance

check:
	@$(SET_UP)
	@$(call quietly,$(BIN)/ruff check)
	@$(call quietly,$(BIN)/ruff format --check)
	@$(call quietly,$(BIN)/mypy)
	@$(call quietly,$(BIN)/lint-imports)

down:
	@[ ! -x $(BIN)/harebell ] || $(BIN)/harebell dev stop
