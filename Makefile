# The commands for developers. CI runs the same commands. YES=1 installs packages without a prompt.

BIN := .venv/bin
SET_UP := sh services/harebell/dev/bootstrap.sh
# The RabbitMQ version for tests: make test BROKER=4.3. An empty value selects the installed version.
BROKER :=
NEWEST := 4.3
export YES BROKER
# Without bytecode, each start of a service and of the command line compiles every module.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/python -m pytest
# tests/suite/suites.py lists the parts of each suite.
suite = started=$$(date +%s) && $(SET_UP) tests && $(tree) && \
	$(BIN)/python -m tests.suite $(1) --started $$started

# Run a command and print its output only after a failure.
quietly = output=$$($(1) 2>&1) || { printf '%s\n' "$$output"; exit 1; }

# A RabbitMQ version that is not installed runs in a separate Debian tree.
tree = needed=$$($(BIN)/python -m tests.rig.broker_versions) && \
	sh tests/rig/debian_root.sh $$needed

# The lock names the public index, also where the environment or a file names another one.
INDEX := https://pypi.org/simple
UV := env -u UV_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS \
	UV_DEFAULT_INDEX=$(INDEX) $(BIN)/uv --quiet --no-config
EXPORT := $(UV) export --frozen --format requirements.txt --no-emit-project --no-header
AUDIT := $(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off

.PHONY: help demo unit test affected test-all test-long test-clock selection deploy mutants chaos bench check docs pictures lock sbom deb audit-packages release-check down
.NOTPARALLEL:

help:
	@echo "make demo       Set up this machine, start every service and run a demonstration."
	@echo "make unit       Run every test that needs no server."
	@echo "make test       Set up, check the code and run every test except the long tests, as CI does."
	@echo "                A failed test of servers is repeated once, alone, and reported as UNSTABLE."
	@echo "                BROKER=4.0 or BROKER=4.3 selects another version of RabbitMQ."
	@echo "make affected   Run the tests of the modules that the branch has changed: BASE=main."
	@echo "make test-all   Run test-long, test-clock, and a selection on the newest version of RabbitMQ."
	@echo "make test-long  Run the long tests."
	@echo "make test-clock Run the tests without acceptance tests at ten other times and time zones."
	@echo "make selection  Run the tests that depend most on the version of RabbitMQ: BROKER=4.3."
	@echo "make deploy     Run the compose stack in a private Docker daemon, and the Debian package in a"
	@echo "                machine of systemd. Needs root and about half an hour."
	@echo "make mutants    Break one rule at a time and report the changes that no test notices:"
	@echo "                ONLY=fencing,dst JOBS=2"
	@echo "make chaos      Inject every fault into a separate stack and check every run:"
	@echo "                SEEDS=n ROWS=6,10b OUTAGE=5s"
	@echo "make bench      Measure the cost of a run and the lateness of its start:"
	@echo "                ONLY=stampede,http FULL=1 OUT=file"
	@echo "                PEERS=1 also measures Celery and BullMQ, one after the other."
	@echo "make check      Check lint, format, types and imports. Print only the failures."
	@echo "make docs       Build the site of the documentation into dist/site and check its links."
	@echo "make pictures   Make the pictures of the documents again, from a stack of this machine."
	@echo "make lock       Resolve the ranges of pyproject.toml again and write uv.lock and requirements."
	@echo "                UPGRADE=1 selects the newest versions."
	@echo "make sbom       Install the services from the lock and write dist/harebell.cdx.json."
	@echo "make deb        Build the Debian package with the units of systemd: dist/harebell_*.deb."
	@echo "make audit-packages"
	@echo "                Compare the locked versions with the known vulnerabilities of PyPI."
	@echo "make release-check"
	@echo "                Build the wheels twice, check them and install them on each Python from 3.11."
	@echo "make down       Stop the processes that make demo has started."

demo:
	@$(SET_UP) servers
	@$(BIN)/python -m harebell.dev.demo

unit test test-long test-clock selection:
	@$(call suite,$@)

affected:
	@$(call suite,affected $(if $(BASE),--base $(BASE)))

# The selection needs root, which builds the tree of the newest version.
test-all: test-long test-clock
	@[ -n "$(BROKER)" ] || [ "$$(id -u)" != 0 ] || \
		$(MAKE) --no-print-directory selection BROKER=$(NEWEST)

# These tests build images and packages, so neither `make test` nor `make test-all` runs them.
deploy:
	@$(SET_UP) tests
	@$(PYTEST) -m deploy

JOBS := 2
mutants:
	@$(SET_UP) tests
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) $(if $(ONLY),--only "$(ONLY)")

SEEDS := 1
chaos:
	@$(SET_UP) servers
	@[ -n "$(ROWS)$(SOAK)" ] || $(PYTEST) -m chaos
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

# A warning, such as a link to a missing page or heading, fails the build.
docs:
	@$(SET_UP)
	@$(call quietly,NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean --config-file .mkdocs.yml)
	@cd docs && find . -name '*.md' -exec cp --parents -t ../dist/site {} +
	@echo "Open dist/site/index.html."

# The tests of these pages take the pictures of the terminal, the management UI, the forecast and the
# tables of the dashboards.
pictures:
	@$(SET_UP) tests
	@PICTURES=1 $(PYTEST) tests/acceptance/test_dead_letter_pictures.py \
		tests/acceptance/test_management_ui.py tests/acceptance/test_forecast.py \
		tests/acceptance/test_dashboards.py
	@$(BIN)/python -m tests.tools.reference

# A lock that is older than pyproject.toml stops the set-up, so only a missing uv causes the set-up.
lock:
	@[ -x $(BIN)/uv ] || $(SET_UP)
	@$(UV) lock $(if $(UPGRADE),--upgrade)
	@$(EXPORT) --no-dev --output-file requirements/services.txt >/dev/null
	@$(EXPORT) --extra dev --group docs --output-file requirements/development.txt >/dev/null
	@$(EXPORT) --only-group build --output-file requirements/build.txt >/dev/null

sbom:
	@$(SET_UP)
	@$(BIN)/python -m tests.tools.bill_of_materials dist/harebell.cdx.json

deb:
	@$(SET_UP) package
	@sh compose/debian/build.sh dist

# A package that the vulnerability service does not know or cannot answer for is a failure.
audit-packages:
	@$(SET_UP)
	@for file in services development; do \
		$(AUDIT) --requirement requirements/$$file.txt || { \
		echo "The audit of requirements/$$file.txt failed: see the reason above." >&2; exit 1; }; \
	done

release-check:
	@$(SET_UP)
	@$(BIN)/python -m tests.tools.release_check

down:
	@[ ! -x $(BIN)/harebell ] || $(BIN)/harebell dev stop
