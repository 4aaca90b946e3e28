# Two commands on a fresh machine: `make serve` and `make test`. All set-up goes into .venv and build/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PINS := requirements.txt requirements-console.txt requirements-check.txt requirements-dev.txt
READY := $(VENV)/.ready-$(shell cat $(PINS) pyproject.toml | cksum | cut -d' ' -f1)
SPARK_PINS := requirements-spark-base.txt requirements-spark.txt
SPARK := $(VENV)/.spark-$(shell cat $(SPARK_PINS) | cksum | cut -d' ' -f1)
AUDIT := build/audit/.ready-$(shell cksum < requirements-audit.txt | cut -d' ' -f1)
CHECKING := build/check/.ready-$(shell cat requirements.txt requirements-check.txt | cksum | cut -d' ' -f1)
SITE := build/docs/.ready-$(shell cksum < requirements-docs.txt | cut -d' ' -f1)
DEPLOY := build/deploy/.ready-$(shell cksum < requirements-deploy.txt | cut -d' ' -f1)
# The pins name everything that is needed, and Python compiles what is imported: half the time.
PINNED := --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes -r
LANE := $(wildcard src/escrowmq/lane/*.[ch])
RELEASES := spark-4.1 spark-4.3
ARGS ?=

# Images for containers often set it. Tests start hundreds of processes, and each would compile what it
# imports anew: half of the CPU that a server takes to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve demo shop test unit coverage long interop pipeline foreign ready spark-ready pythons spark-versions $(RELEASES) crash failover fuzz races faults sanitized pure wheels release deployment audit sbom check format docs protos bench clean
.DEFAULT_GOAL := test

$(READY): $(PINS) pyproject.toml setup.py $(LANE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "EscrowMQ needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PINNED) requirements-dev.txt
	rm -f src/escrowmq/lane/*.so  # where the new one does not compile, the old one is not taken for it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	rm -f $(VENV)/.ready-*
	touch $@

$(SPARK): $(READY) $(SPARK_PINS)
	$(BIN)/python -m pip install $(PINNED) requirements-spark.txt
	rm -f $(VENV)/.spark-*
	touch $@

$(AUDIT): requirements-audit.txt
	$(PYTHON) -m venv --clear build/audit
	build/audit/bin/python -m pip install $(PINNED) requirements-audit.txt
	touch $@

serve: $(READY)   ## the embedded server: name server and broker in one process
	exec $(BIN)/escrowmq serve --data data $(ARGS)

demo: $(READY)    ## ten transactions settle, shown as a table
	$(BIN)/python examples/ten_transactions.py $(ARGS)

# Six workers for two cores: much of what the tests do is waiting for clients and servers. Four took an
# eighth longer.
test: $(SPARK)    ## every test but the long ones; what needs Java, Go, Redis, PostgreSQL, MariaDB or etcd is skipped without
	$(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder -q $(ARGS)

shop: $(READY)    ## the example shop (examples/shop): a broker, orders with FastAPI, mails, parcels in Java
	$(BIN)/python -m examples.shop $(ARGS)

unit: $(READY)    ## pure code alone, without Spark, foreign clients and servers; for while you work
	$(BIN)/python -m pytest -n 2 --dist loadfile -q tests/unit tests/golden --ignore=tests/unit/pipeline \
		--hypothesis-profile=quick -m "not thorough and not long" $(ARGS)

coverage: $(SPARK) ## what the tests run of each room, and whether tests/where.toml is right; without real clients and servers
	COVERAGE_FILE=build/coverage.data $(BIN)/python -m pytest -n 3 --dist loadfile -q \
		tests/unit tests/golden tests/fuzz tests/simulation \
		--cov=escrowmq --cov-context=test --cov-report=json:build/coverage.json $(ARGS)
	$(BIN)/python tools/rooms_covered.py build/coverage.json
	$(BIN)/python tools/held.py build/coverage.data

long: $(SPARK)    ## the tests marked `long`, and no others: more releases, databases and faults; before a release
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -q -m long $(ARGS)

interop: $(SPARK) ## foreign clients and brokers, every release with every test
	$(BIN)/python -m pytest -n 2 --dist loadfile -q tests/interop tests/v5 -m "long or not long" $(ARGS)

pipeline: $(SPARK) ## every test of the data pipeline, with those that take minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile -q tests/spark -m "long or not long" $(ARGS)

foreign: $(READY) ## others' clients and brokers, fetched and built before the tests want them
	$(BIN)/python -m tests.foreign $(ARGS)

pythons:          ## the tests that need nothing foreign, on Python 3.13 and 3.14; as root; ten minutes
	tools/pythons.sh $(ARGS)

ready: $(READY)   ## the environment that all else here runs in

spark-versions: $(RELEASES)  ## the PySpark releases beside the one of `make test`, each in its own environment

spark-ready: $(SPARK)  ## the environment with Spark, which the tests run in

$(RELEASES): spark-%: build/spark-%/.ready
	build/spark-$*/bin/python -m pytest -q tests/spark -m versions $(ARGS)

# What the releases differ in is PySpark alone: all else is found in .venv, which has the same pins.
build/spark-%/.ready: requirements-spark-%.txt $(SPARK)
	rm -rf build/spark-$*
	$(PYTHON) -m venv --without-pip build/spark-$*
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$(PACKAGES)")')" \
		> "$$(build/spark-$*/bin/python -c "$(PACKAGES)")/rest.pth"
	$(BIN)/python -m pip --python build/spark-$*/bin/python install $(PINNED) requirements-spark-$*.txt
	touch $@

PACKAGES := import sysconfig; print(sysconfig.get_path('purelib'))

crash: $(READY)   ## fifty rounds of kill -9 and recount; some minutes
	ESCROWMQ_CRASH_ROUNDS=50 $(BIN)/python -m pytest -q tests/crash $(ARGS)
	$(BIN)/python -m tests.outbox.crash_runs --kills 1000

ROUNDS ?= 50
failover: $(READY) ## groups of real brokers under each kind of fault; a table; ROUNDS=50 takes two hours, and stops then
	$(BIN)/python -m tests.failover.rounds --rounds $(ROUNDS) --minutes 150 $(ARGS)
	$(BIN)/python -m pytest -q tests/failover -m "long or not long"

hostile: $(READY) ## what accounts and strangers must not be able to do, against real processes; a minute
	$(BIN)/python -m pytest -n 2 --dist loadfile -q tests/hostile $(ARGS)

fuzz: $(READY)    ## odd bytes for whatever reads what others write, many examples of each property; a quarter of an hour
	ESCROWMQ_FUZZ_SECONDS=60 ESCROWMQ_FUZZ_SEED=$${ESCROWMQ_FUZZ_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest -q tests/fuzz $(ARGS)
	$(BIN)/python -m pytest -q tests/unit -m hypothesis --hypothesis-profile=search

races: $(READY)   ## ten thousand orders in which checks and commits can come; minutes
	$(BIN)/python -m tests.outbox.races --seeds 10000 $(ARGS)
	$(BIN)/python -m tests.outbox.races --seeds 1000 --on postgresql $(ARGS)
	$(BIN)/python -m tests.outbox.races --seeds 1000 --on mariadb $(ARGS)

mutants: $(READY) ## conditions taken out one by one, for tests that do not notice; ARGS="--count 50 --seed 7"; minutes to hours
	$(BIN)/python -m tools.mutants $(ARGS)

faults: crash fuzz races  ## all that is long: crashes, odd bytes, two thousand simulated worlds
	$(BIN)/python -m tests.sim --seeds 0:2000

# Bytes are allocated one by one, so that whatever is read beyond one of them is seen.
sanitized: $(READY) ## the compiled lane with the address and undefined-behaviour sanitizers, under the tests that hold it
	rm -rf build/sanitized
	mkdir -p build/sanitized
	cp -r src build/sanitized/src
	rm -f build/sanitized/src/escrowmq/lane/*.so
	$(CC) -std=c11 -g -O1 -Wall -Wextra -Werror -fPIC -shared -fno-omit-frame-pointer \
		-fsanitize=address,undefined -fno-sanitize-recover=all \
		-I$(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') \
		src/escrowmq/lane/*.c -o build/sanitized/src/escrowmq/lane/_compiled.abi3.so
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
		ESCROWMQ_LANE_MUST_BE=build/sanitized $(BIN)/python -m pytest -q -p no:cacheprovider \
		-o pythonpath=build/sanitized/src tests/fuzz/test_lane.py $(HELD_BOTH_WAYS) tests/unit/broker/fast \
		tests/unit/codec/test_repeated_requests.py $(ARGS)

# The compiled lane does what plain Python does: these tests run with it and without. Those of the fast
# path need it.
HELD_BOTH_WAYS := tests/unit/lane tests/unit/codec/test_request_shapes.py tests/unit/codec/test_log_records.py tests/unit/txn/test_stored_halves.py tests/unit/txn/test_pending_recovery.py tests/unit/store/test_index_chains.py tests/unit/base/test_runs.py tests/unit/store/test_unit_runs.py tests/unit/store/test_queue_reading.py tests/unit/store/test_store.py tests/unit/store/test_damage.py

pure: $(READY)    ## the tests of what has a compiled twin, with the plain one alone
	ESCROWMQ_PURE=1 $(BIN)/python -m pytest -q $(HELD_BOTH_WAYS) tests/unit/codec $(ARGS)

wheels: $(READY)  ## the wheel for this machine, and the one for those without a compiler, in build/wheels
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir build/wheels .
	ESCROWMQ_PURE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --wheel-dir build/wheels .

# Not part of `check`, nor of CI: what is known of a version changes without a change here, and it is
# asked of a service of others.
audit: $(AUDIT)   ## asks PyPI for known weaknesses of everything that is pinned; says so when it gets no answer
	build/audit/bin/python tools/audit.py requirements-spark.txt

release: sbom     ## everything that a release consists of, in build/release; ARGS=--draft for the unreleased state
	$(BIN)/python tools/release.py $(ARGS)

# Helm is built from its sources, which takes two minutes; `HELM=` leaves the chart out.
HELM ?= build/deploy/bin/helm
deployment: $(DEPLOY) $(HELM) ## checks deploy/: the Dockerfile, the compose file, the systemd unit and the Helm chart
	tools/deployment.sh $(CURDIR)/build/deploy/bin $(and $(HELM),$(abspath $(HELM)))

build/deploy/bin/helm: | $(DEPLOY)
	GOBIN=$(CURDIR)/build/deploy/bin go install helm.sh/helm/v3/cmd/helm@v3.16.4

$(DEPLOY): requirements-deploy.txt
	$(PYTHON) -m venv --clear build/deploy
	build/deploy/bin/python -m pip install $(PINNED) requirements-deploy.txt
	touch $@

sbom: $(READY) $(AUDIT) ## what an installation consists of, as CycloneDX, with licences: build/escrowmq.cdx.json
	rm -rf build/sbom
	$(PYTHON) -m venv --without-pip build/sbom
	build/audit/bin/python -m pip --python build/sbom/bin/python install --quiet \
		--disable-pip-version-check --require-hashes -r requirements.txt
	ESCROWMQ_PURE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --wheel-dir build/sbom/wheel .
	build/audit/bin/python -m pip --python build/sbom/bin/python install --quiet \
		--disable-pip-version-check --no-deps --no-index build/sbom/wheel/*.whl
	sed "s/^dynamic = .*/version = \"$$($(BIN)/python -c 'from escrowmq.base.release import RELEASE; print(RELEASE)')\"/" \
		pyproject.toml > build/sbom/pyproject.toml
	build/audit/bin/cyclonedx-py environment --pyproject build/sbom/pyproject.toml --gather-license-texts \
		--output-reproducible --validate -o build/escrowmq.cdx.json build/sbom/bin/python

$(CHECKING): requirements.txt requirements-check.txt
	$(PYTHON) -m venv --clear build/check
	build/check/bin/python -m pip install $(PINNED) requirements-check.txt
	touch $@

# With the environment of the tests (`make ready`, CI) mypy sees the types of all libraries. A fresh clone
# need not wait for these: in a small environment, what is not installed there counts as Any.
ifneq ($(wildcard $(READY)),)
CHECK := $(BIN)
CHECK_READY := $(READY)
MYPY_LESS :=
else
CHECK := build/check/bin
CHECK_READY := $(CHECKING)
MYPY_LESS := --ignore-missing-imports --allow-subclassing-any --allow-untyped-decorators \
	--no-warn-unused-ignores --no-warn-return-any --cache-dir build/check/mypy
endif

check: $(CHECK_READY) ## format, lint, types, import rules, house rules
	$(CHECK)/ruff format --check .
	$(CHECK)/ruff check .
	$(CHECK)/mypy $(MYPY_LESS)
	PYTHONPATH=src $(CHECK)/lint-imports
	PYTHONPATH=src $(CHECK)/python tools/tidy.py
	PYTHONPATH=src $(CHECK)/python tools/circles.py
	PYTHONPATH=src $(CHECK)/python tools/intruders.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY) $(SITE) ## the reference pages anew, from the docstrings, and the site in build/site; a broken link ends it
	$(BIN)/python tools/reference.py
	build/docs/bin/sphinx-build -q -W --keep-going -c docs -b html -d build/docs/trees . build/site

$(SITE): requirements-docs.txt
	$(PYTHON) -m venv --clear build/docs
	build/docs/bin/python -m pip install $(PINNED) requirements-docs.txt
	touch $@

protos: $(READY)  ## proxy/gen anew, from proxy/v2.proto
	$(BIN)/python tools/protos.py

bench: $(READY)   ## side by side with the Java broker; needs Java and Maven, takes minutes
	$(BIN)/python benchmarks/side_by_side.py $(ARGS)

clean:
	rm -rf $(VENV) build
