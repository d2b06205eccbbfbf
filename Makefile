# Every target sets up what it needs; setting up again does nothing when nothing changed.
# A distribution's Python is compiled with optimizations, as the image's is: pyenv's takes a seventh more of the processor.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/)python3
VENV   := .venv
BIN    := $(VENV)/bin
# What runs is installed in two thirds of the time that it takes with what checks and tests need.
RUNTIME := $(VENV)/.installed
STAMP   := $(VENV)/.installed-for-tests

# The folders of tests that T names: a package of operator/respread, faults, conformance, …
SELECTED = $(if $(T),$(or $(wildcard tests/$(T) tests/*/$(T)),$(error no folder under tests/ is called "$(T)")))

# Tests are read by each worker: without what Python compiled the last time that takes three times as long.
unexport PYTHONDONTWRITEBYTECODE

# A worker takes whole files, in the order that tests/conftest.py puts them in: what a file's tests share is started once.
EACH_FILE_WHOLE = --dist loadfile --no-loadscope-reorder

# Every target with a description makes no file.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*\#\#.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Show the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 20

setup: $(STAMP) ## Make the virtual environment with the pinned dependencies.
	@$(BIN)/python -m compileall -q operator # as pip does with what it installs: a start takes half as long

# Each package under operator/ is a project with its own wheel; the commands' is in the pyproject.toml at the root.
PROJECTS = operator/respread . operator/respread_sandbox

$(RUNTIME): requirements.txt requirements-build.txt $(PROJECTS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("respread needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@# Not compiled, which takes as long as the rest of it: what a program imports is compiled then, and `setup` compiles all.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.txt -r requirements-build.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(PROJECTS:%=-e %)
	@touch $@

$(STAMP): $(RUNTIME) requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true # some packages hold files for other Pythons
	@touch $@

# Compiles the tests once, instead of in each worker of `make test`.
COMPILED := $(VENV)/.compiled
$(COMPILED): $(STAMP)
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
	@touch $@

LOCK = UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade --no-emit-package respread-operator
lock: setup ## Pin the newest dependencies again, with hashes and without host names.
	@$(LOCK) pyproject.toml -o requirements.txt
	@$(LOCK) -c requirements.txt operator/respread/pyproject.toml -o requirements-operator.txt
	@$(LOCK) -c requirements.txt --group dev pyproject.toml -o requirements-dev.txt
	@for each in build release site pictures; do $(LOCK) -c requirements-dev.txt --group $$each -o requirements-$$each.txt || exit; done
	@$(MAKE) --no-print-directory lock-image

lock-image: setup ## Pin the newest digest of the image's base in the Dockerfile.
	@base=$$(sed -nE 's/^ARG PYTHON_IMAGE=([^@]*)@.*/\1/p' Dockerfile) && digest=$$($$($(GO_TOOL) crane) digest "$$base") && \
	sed -i -E "s/^(ARG PYTHON_IMAGE=.*@).*/\1$$digest/" Dockerfile && echo "$$base@$$digest"

# With the compiler's flags and environment of the real build (respread_sandbox/binaries.py), so that Go finds in its cache what was compiled.
COMPILE_SOONER = env -u GOFLAGS CGO_ENABLED=0 GOWORK=off GOGC=1000 GOMEMLIMIT=2GiB go build -trimpath -buildvcs=false -gcflags=all=-dwarf=false \
	-o /dev/null go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-scheduler \
	k8s.io/kubernetes/cmd/kube-controller-manager sigs.k8s.io/kwok/cmd/kwok k8s.io/kubernetes/cmd/kubectl

demo: ## Scale-downs on a real control plane without and with prevention, and the restored spread (UI=1: also as a page).
	@# On a new machine, Go downloads and compiles while pip installs what then builds the rest and shows how far it is.
	@go=; if [ -e $(RUNTIME) ]; then :; else (cd operator/respread_sandbox && exec $(COMPILE_SOONER)) >/dev/null 2>&1 & go=$$!; fi; \
	$(MAKE) --no-print-directory $(RUNTIME); made=$$?; [ -z "$$go" ] || kill $$go 2>/dev/null; [ $$made = 0 ] && \
	$(BIN)/respread demo $(if $(UI),--ui)
	@command -v respread >/dev/null || echo '`respread` is in $(BIN): export PATH="$$PWD/$(BIN):$$PATH"'

demo-picture: setup ## Draw the README's picture again: the demo's output on a terminal, as SVG.
	@$(BIN)/python -m tests.demo_picture docs/demo.svg

# A control plane then takes less of the processor than by default, and a few hundred MiB more.
test test-operation test-all: export GOGC = 400

# What is rarely broken by a change in one package, and takes a fifth of the time of all tests.
OPERATION = tests/faults tests/integration/project

test: setup $(COMPILED) ## The tests, with those against the real control plane, but without test-operation's and the long ones (T=planning: those in folders of that name).
	@$(BIN)/python -m pytest -n auto -m "not long" $(EACH_FILE_WHOLE) $(or $(SELECTED),$(OPERATION:%=--ignore=%))

test-operation: setup $(COMPILED) ## Respread as it is installed and operated: chart, manifests, upgrades, what pages say to type, and faults such as killed leaders.
	@$(BIN)/python -m pytest -n auto -m "not long" $(EACH_FILE_WHOLE) $(OPERATION)

test-all: setup $(COMPILED) ## Every test, with 25 times as many random clusters as test has: 20 minutes on two cores.
	@RESPREAD_INSTANCES_FACTOR=25 $(BIN)/python -m pytest -n auto $(EACH_FILE_WHOLE) $(SELECTED)

recorded-run: setup prometheus ## Type what README, quick start and sandbox.md say, in a new clone without caches, until a dashboard shows an eviction (ARGS=--warm: with caches; 15 minutes).
	@$(BIN)/python -m tests.recorded_run $(ARGS)

test-versions: setup ## The tests on the control plane, and the demo, on every Kubernetes version (VERSIONS="1.33 1.36", ONLY="planning demo"): ten minutes each.
	@$(BIN)/python -m tests.versions $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(ONLY),--only $(ONLY))

test-ui: setup browser ## The page's tests, and those in Chromium: two minutes.
	@RESPREAD_BROWSER_REQUIRED=1 $(BIN)/python -m pytest -n 2 $(EACH_FILE_WHOLE) tests/unit/ui $(wildcard tests/integration/cli/test_ui*.py)

# The names by which tests/chromium.py looks for a browser; npm fetches axe-core.
NO_BROWSER = $(if $(shell for each in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$each; done; true),,chromium)
NO_NPM = $(if $(shell command -v npm; true),,npm)
browser: ## Install Debian's Chromium and npm for the tests of the page if they are missing; needs root.
	@[ -z "$(NO_BROWSER)$(NO_NPM)" ] || { apt-get update --quiet && DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends $(NO_BROWSER) $(NO_NPM); }

test-karpenter: setup ## The tests with Karpenter on the control plane (SECONDS=600: the time of consolidation while a workload is scaled).
	@$(if $(SECONDS),RESPREAD_KARPENTER_SECONDS=$(SECONDS)) $(BIN)/python -m pytest -n 0 tests/karpenter

test-custom-workloads: setup ## The tests with the controllers of Argo Rollouts, OpenKruise and LeaderWorkerSet on the control plane.
	@$(BIN)/python -m pytest -n 0 tests/custom_workloads

test-image: setup container-tools ## Build the image and restore a scale-down with it (needs podman, which `make container-tools` installs as root).
	@$(BIN)/python -m pytest -n 0 tests/image

# Many of the fast tests wait: with one worker per processor, a third of the processors' time is unused.
check: check-static $(COMPILED) ## Lint, types, layers and the fast tests: a minute and a quarter.
	@$(BIN)/python -m pytest -q -n $$($(BIN)/python -c 'import os; print(2 * os.cpu_count())') --dist worksteal -m "not controlplane" tests/unit tests/conformance

test-node: setup ## Respread in real pods on two real nodes, installed by chart and manifests (needs root; `make node-tools` installs what it needs).
	@$(BIN)/python -m tests.node $(ARGS)

NEWEST = 3.13
# A shim of pyenv that is on the PATH need not work.
NEWEST_PYTHON = $(shell for each in python$(NEWEST) ~/.pyenv/versions/$(NEWEST).*/bin/python; do $$each -c '' 2>/dev/null && echo $$each && break; done)
test-newest-python: setup ## The tests of requests, TLS and Kopf's handlers with the Python of the image, where it is installed.
ifeq ($(NEWEST_PYTHON),)
	@echo "Skipped: Python $(NEWEST) is not installed."
else
	@$(MAKE) --no-print-directory setup VENV=.venv-$(NEWEST) PYTHON=$(NEWEST_PYTHON)
	@.venv-$(NEWEST)/bin/python -m pytest -n auto -m "not long" $(EACH_FILE_WHOLE) $(wildcard tests/*/kube tests/*/handlers) tests/integration/controller/test_in_a_pod.py
endif

mutants: setup ## Put plausible faults into the imported code and show which test catches each (ARGS=--help for more).
	@$(BIN)/python -m tests.mutants $(ARGS)

check-static: setup ## Lint, types and layers.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy operator tests bench krew
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/lint-imports --no-logo

prometheus: setup ## Fetch Prometheus from Debian's package into the cache, for the tests of monitoring.
	@$(BIN)/python -m tests.prometheus_programs

screenshots: setup browser ## Make the pictures in docs/ui.md again, in Chromium.
	@$(BIN)/python -m tests.screenshots

architecture: setup ## Draw the diagram in docs/architecture.md again, from the imports between packages.
	@$(BIN)/python -m tests.package_imports

reference: setup ## Write the generated parts of pages: options of the command line, fields and examples of policies, metrics, and the values of the chart.
	@$(BIN)/python -m tests.reference

crds: setup ## Generate the CustomResourceDefinitions in crds/ from the types.
	@$(BIN)/python -m respread.api.schema crds
	@cp crds/*.respread.dev.yaml charts/respread/crds/

crds-golden: crds ## Make the CRDs in crds/ the compatibility reference: at a release, or for an intended break.
	@cp crds/*.respread.dev.yaml tests/golden/crds/

chart-files: crds ## Copy the shared files of crds/ and manifests/ into the Helm chart.
	@cp manifests/components/monitoring/dashboard.json manifests/components/monitoring/prometheus-rule.yaml charts/respread/files/

conformance: setup ## Compare the predictions with kube-scheduler's decisions (DATA=folder or file: other data than the project's).
	@$(BIN)/python -m tests.conformance $(or $(DATA),tests/conformance/data)
	@$(if $(DATA),,$(BIN)/python -m tests.conformance tests/conformance/data/1.33 --kubernetes-version v1.33.13)

properties: setup ## Plans against the optimum in 20,000 tiny and 10,000 larger clusters instead of the 80 and 20 of `make test`: an hour on two cores.
	@RESPREAD_INSTANCES_FACTOR=250 $(BIN)/python -m pytest -n logical tests/properties/planning/test_fewest_evictions.py

tight: setup ## The operator's loop in 2,000 clusters with hardly any room instead of the 8 of `make test`: half an hour on two cores.
	@RESPREAD_INSTANCES_FACTOR=250 $(BIN)/python -m pytest -n logical tests/properties/planning/test_tight_loop.py

bench: setup ## All benchmarks except big, busy and pace, one after another; they need an idle machine.
	@for each in evictions feasibility ingest latency plan prevention; do echo "$$each:" && $(BIN)/python -m bench.$$each && echo || exit; done

peer: setup ## Build the descheduler that benches compare with Respread, once, into the cache; print its path.
	@$(BIN)/python -m bench.peer

peer-tests: setup ## descheduler's own tests of its topology spread plugin, tried on Respread: tables for docs/compare.md; Go builds both tests once.
	@$(BIN)/python -m bench.peer_cases && echo && $(BIN)/python -m bench.peer_e2e

compare: setup ## Respread and descheduler on the same clusters, for docs/compare.md: a quarter of an hour (ARGS='--worlds scale-down soft', --help for more).
	@$(BIN)/python -m bench.compare $(ARGS)

bench-big: setup ## 150,000 pods and a recorded scale-down: CPU and memory compared with the descheduler's (ARGS=--small).
	@$(BIN)/python -m bench.big $(ARGS)

bench-busy: setup ## A busy cluster scaled down: Respread and its peer on a real control plane (ARGS=--small, --live, --help for more).
	@$(BIN)/python -m bench.busy $(ARGS)

bench-evictions: setup ## Evictions compared with the fewest possible, with different schedulers.
	@$(BIN)/python -m bench.evictions $(ARGS)

bench-deciding: setup ## How often each part of planning decides anything (ARGS="--worlds 600").
	@$(BIN)/python -m bench.deciding $(ARGS)

bench-feasibility: setup ## The cost of predicting where pods may be placed, by the number of nodes.
	@$(BIN)/python -m bench.feasibility $(ARGS)

bench-idle: setup ## The cost at rest with 30,000 pods, except for heartbeats (ARGS=--every 10: one of each node every 10 s).
	@$(BIN)/python -m bench.idle $(ARGS)

bench-ingest: setup ## The cost of loading 30,000 pods, and events per second (ARGS=--many: 150,000 pods).
	@$(BIN)/python -m bench.ingest $(ARGS)

bench-latency: setup ## How soon it decides while 2,000 pods change per second, and the delays of probes and the Lease.
	@$(BIN)/python -m bench.latency $(ARGS)

bench-pace: setup ## How fast a spread is restored where pods take time to stop and to be Ready (ARGS=--small, --help for more).
	@$(BIN)/python -m bench.pace $(ARGS)

bench-plan: setup ## The cost of planning, from scratch and after one event, for 1,000 to 15,000 nodes.
	@$(BIN)/python -m bench.plan $(ARGS)

bench-records: setup ## What the records of policies cost, by the number of moves under way (ARGS="--moves 1000").
	@$(BIN)/python -m bench.records $(ARGS)

bench-prevention: setup ## The cost of ranking 150,000 pods, and one changed workload.
	@$(BIN)/python -m bench.prevention $(ARGS)

bench-ranking: setup ## The benefit of Respread's ranking of pods over plain ordinals per zone.
	@$(BIN)/python -m bench.ranking

bench-ui: setup browser ## The page of a big cluster in Chromium: first picture, interaction, frames while 2,000 pods a second change, memory.
	@$(BIN)/python -m bench.ui $(ARGS)

soak: setup ## Random faults for SECONDS (600), from a SEED; ends with 1 unless no pod was evicted, lost or held back too many.
	@$(BIN)/python -m tests.faults.soak --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))

VERSION = $(shell sed -nE 's/^__version__ = "(.*)"/\1/p' operator/respread/__init__.py)
# What the Dockerfile has: the operator, or the page.
TARGET ?= operator
NAME    = respread$(if $(filter page,$(TARGET)),-ui)
IMAGE  ?= ghcr.io/respread/$(NAME):$(VERSION)
# The first that works here. Only podman and buildah make the same image of the same commit each time.
ENGINE ?= $(shell for each in podman buildah docker; do $$each info >/dev/null 2>&1 && echo $$each && break; done)
GO_TOOL = $(BIN)/python -m tests.go_programs

$(VENV)/.release: $(STAMP) requirements-release.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-release.txt
	@touch $@

$(VENV)/.site: $(STAMP) requirements-site.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.txt
	@touch $@

$(VENV)/.pictures: $(STAMP) requirements-pictures.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-pictures.txt
	@touch $@

panels: $(VENV)/.pictures prometheus ## Draw the dashboard's panels again, from a real Prometheus that scrapes a real operator: four minutes.
	@$(BIN)/python -m tests.panels docs/monitoring

concept-pictures: setup ## Draw the pictures of skew, maxSkew, minDomains and node policies again, as Respread counts them.
	@$(BIN)/python -m tests.concept_pictures docs/images

SPELT = *.md docs charts crds manifests krew operator bench
site: $(VENV)/.site ## Build the pages of docs/ in build/site; a broken link, a misspelt word and too long a part for users are errors.
	@$(BIN)/codespell $(SPELT)
	@mkdir -p build && if NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict >build/site.log 2>&1; then grep '^For users' build/site.log; else \
		grep -v '^INFO' build/site.log >&2; exit 1; fi # --quiet would drop the warnings, and --strict would count none

check-workflows: $(VENV)/.release ## Judge .github/workflows by actionlint and zizmor.
	@$$($(GO_TOOL) actionlint) .github/workflows/*.yaml
	@$(BIN)/zizmor --offline --no-progress --quiet .github/workflows

# Files are as old as the commit.
COMMITTED = $(shell git log -1 --format=%ct)
WHEELS = $(foreach each,respread_operator respread,dist/$(each)-$(VERSION)-py3-none-any.whl)

dist: $(VENV)/.release ## Make the files of a release in dist/: wheels, chart, kubectl plugin, definitions, SBOM, checksums.
	@rm -rf dist && mkdir dist
	@$(MAKE) --no-print-directory chart krew
	@for each in crds/*.respread.dev.yaml; do echo "---"; cat $$each; done >dist/respread-crds-$(VERSION).yaml
	@PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file dist/respread-$(VERSION).cdx.json requirements.txt
	@PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements --pyproject operator/respread/pyproject.toml --output-reproducible --output-file dist/respread-operator-$(VERSION).cdx.json requirements-operator.txt
	@$(MAKE) --no-print-directory checksums

wheels: setup ## Build the wheels into dist/.
	@SOURCE_DATE_EPOCH=$(COMMITTED) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist $(PROJECTS:%=./%)

# Helm keeps the times of files, which are those of the checkout.
CHART ?= charts/respread
CHART_TO ?= dist
chart: setup ## Package the Helm chart into dist/: the same file for the same commit.
	@rm -rf build/chart && mkdir -p build/chart && cp -R $(CHART) build/chart/respread && find build/chart -exec touch --date=@$(COMMITTED) {} +
	@$$($(GO_TOOL) helm) package build/chart/respread --destination $(CHART_TO) >/dev/null

krew: wheels ## Make the kubectl plugin in dist/: an archive for each platform, and krew's manifest krew/respread.yaml.
	@$(BIN)/python -m krew.archives $(WHEELS) dist

checksums: ## Write SHA256SUMS of the files in dist/, to be signed; image archives are left out, because registries keep images.
	@cd dist && find . -type f ! -name '*-image*.tar' ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum -- >SHA256SUMS && cat SHA256SUMS

check-checksums: ## Check the checksums of the files in dist/.
	@cd dist && sha256sum --check --strict --quiet SHA256SUMS

check-dist: $(VENV)/.release check-checksums ## Check the output of `make dist`: checksums, metadata, and how plugin and chart are installed.
	@$(BIN)/twine check --strict dist/*.whl
	@$(BIN)/python -m pytest -n 0 tests/release

# Each names the version, as it is or as the image to install.
VERSIONED = Dockerfile operator/respread/__init__.py pyproject.toml operator/respread_sandbox/pyproject.toml charts/respread/Chart.yaml manifests/base/kustomization.yaml docs/image.md docs/gitops.md docs/install.md docs/quick-start.md docs/releasing.md
set-version: ## Set the version TO=0.2.0 wherever it is named.
	@echo "$(TO)" | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$$' || { echo "TO=$(TO) is no version such as 0.2.0" >&2; exit 1; }
	@sed -i -E 's/(^|[^0-9.])$(subst .,\.,$(VERSION))([^0-9]|$$)/\1$(TO)\2/g' $(VERSIONED)

# Not asked of another make: that may print which directory it enters.
RELEASE_NOTES = awk '/^\#\# /{here = ($$2 == "$(VERSION)" || $$2 == "[$(VERSION)]"); next} here' CHANGELOG.md

check-tag: ## Check that TAG is this version's, and that the changelog has a section for it.
	@[ "$(TAG)" = "v$(VERSION)" ] || { echo "The tag is $(TAG), the version v$(VERSION)" >&2; exit 1; }
	@[ -n "$$($(RELEASE_NOTES))" ] || { echo "CHANGELOG.md has no section for $(VERSION)" >&2; exit 1; }

release-notes: ## Print the section of CHANGELOG.md for this version.
	@$(RELEASE_NOTES)

sign: setup ## Sign dist/SHA256SUMS by cosign: as the workflow that runs, or with KEY=cosign.key.
	@$$($(GO_TOOL) cosign) sign-blob --yes $(BY_KEY) --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS

check-signature: setup ## Check the signature with KEY=cosign.pub.
	@$$($(GO_TOOL) cosign) verify-blob --key $(KEY) --insecure-ignore-tlog=true --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS

container-tools: ## Install Debian's podman and buildah, which build and test the image; needs root.
	@command -v podman >/dev/null && command -v buildah >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends podman buildah runc mmdebstrap

node-tools: container-tools ## Install Debian's packages that real nodes need, for `make test-node`; needs root.
	@command -v nft >/dev/null && command -v ip >/dev/null && command -v openssl >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends nftables iproute2 openssl

# The history would hold a digest of when files were copied, and the label the tool's version.
REVISION = $(shell git rev-parse HEAD)
SAME_EACH_TIME = $(if $(filter docker,$(ENGINE)),--build-arg SOURCE_DATE_EPOCH=$(COMMITTED),--layers=false --omit-history --identity-label=false --timestamp $(COMMITTED))
# Whatever builds or keeps images needs one of the engines.
.PHONY: engine
engine:
	@[ -n "$(ENGINE)" ] || { echo "Neither podman nor buildah nor docker works here; \`make container-tools\` installs Debian's" >&2; exit 1; }

image: engine ## Build the image by podman, buildah or docker, whichever is installed (TARGET=page: that of the page; IMAGE=name, PYTHON_IMAGE=base).
	@$(ENGINE) build --tag $(IMAGE) $(SAME_EACH_TIME) --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) $(if $(PYTHON_IMAGE),--build-arg PYTHON_IMAGE=$(PYTHON_IMAGE)) --target $(TARGET) .

ARCHIVE ?= dist/$(NAME)-$(VERSION)-image.tar
image-archive: setup engine ## Write the built image to ARCHIVE in dist/, and its SBOM; print its digest and compressed size.
	@mkdir -p $(dir $(ARCHIVE)) && rm -f $(ARCHIVE)
	@$(if $(filter buildah,$(ENGINE)),buildah push --quiet $(IMAGE) oci-archive:$(ARCHIVE),$(ENGINE) save --quiet $(if $(filter podman,$(ENGINE)),--format oci-archive) --output $(ARCHIVE) $(IMAGE))
	@$(BIN)/python -m tests.image_sbom $(ARCHIVE) $(ARCHIVE:.tar=.cdx.json)

# Where a push keeps the digest that the registry returned: a tag may be moved before it is signed.
DIGEST ?= build/pushed.digest
# For a registry on this machine, PLAIN_HTTP=1.
push-image: engine ## Push the image to the registry in its name, and write its digest to the file DIGEST.
	@mkdir -p $(dir $(DIGEST))
	@$(if $(filter docker,$(ENGINE)),docker push $(IMAGE) && image=$(IMAGE) && docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' $(IMAGE) | sed -n "s|^$${image%:*}@||p" >$(DIGEST),$(ENGINE) push $(if $(PLAIN_HTTP),--tls-verify=false) --digestfile $(DIGEST) $(IMAGE))
	@grep -q '^sha256:' $(DIGEST)

push-index: setup ## Push one image that consists of those whose digests are in the files OF; write its digest to the file DIGEST.
	@mkdir -p $(dir $(DIGEST))
	@image=$(IMAGE) && pushed=$$($$($(GO_TOOL) crane) index append --tag $(IMAGE) $(foreach each,$(OF),--manifest $${image%:*}@$$(cat $(each)))) && echo "$${pushed##*@}" | tee $(DIGEST)

# What cosign is called with: with a key, nothing is written to the public log of signatures.
BY_KEY = $(if $(KEY),--key $(KEY) --tlog-upload=false)
.PHONY: by-digest
by-digest:
	@case "$(IMAGE)" in *@sha256:*) ;; *) echo "$(IMAGE) names a tag, which may be moved: sign the digest that the push has written, IMAGE=NAME@sha256:…" >&2; exit 1;; esac

sign-image: by-digest setup ## Sign the image or chart IMAGE=NAME@sha256:… in its registry by cosign, as the workflow that runs, or with KEY=cosign.key.
	@$$($(GO_TOOL) cosign) sign --yes $(BY_KEY) $(IMAGE)

attest-image: by-digest setup ## Sign the SBOM=file of the image IMAGE=NAME@sha256:…, and attach it in the registry.
	@$$($(GO_TOOL) cosign) attest --yes $(BY_KEY) --type cyclonedx --predicate $(SBOM) $(IMAGE)

check-image: check-signed ## Check the signatures of the image and of its SBOM with KEY=cosign.pub.
	@$$($(GO_TOOL) cosign) verify-attestation --key $(KEY) --insecure-ignore-tlog=true --type cyclonedx $(IMAGE) >/dev/null

check-signed: setup ## Check the signature of the image or chart IMAGE with KEY=cosign.pub.
	@$$($(GO_TOOL) cosign) verify --key $(KEY) --insecure-ignore-tlog=true --output text $(IMAGE) >/dev/null

PACKAGE ?= dist/respread-$(VERSION).tgz
push-chart: setup ## Push the chart in dist/ (PACKAGE=file) to REGISTRY=oci://…, and write its digest to the file DIGEST.
	@mkdir -p $(dir $(DIGEST))
	@said=$$($$($(GO_TOOL) helm) push $(PACKAGE) $(REGISTRY) $(if $(PLAIN_HTTP),--plain-http) 2>&1) || { echo "$$said" >&2; exit 1; }; \
	echo "$$said" | sed -n 's/^Digest: //p' | tee $(DIGEST)
	@grep -q '^sha256:' $(DIGEST)

format: setup ## Format the code.
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

clean: ## Remove the virtual environment and caches.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
