# Kernosis. "make" lists the targets.

BIN     := bin/kernosis
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION ?= $(shell git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)

# One set of flags, so that programs, tools and lint share what was compiled. Only the race
# detector needs cgo (vmtest/testrun).
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false

# grpc's tracing page would bring html/template, whose calls of methods by name keep
# every method of every type in the program: 20 MiB. What Go would note of the checkout
# differs from that of an unpacked archive; the version and revision above say it.
GO_BUILD = go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '$(LDFLAGS)'

# The compiler that the committed objects were made with.
CLANG_PACKAGES := clang-16 llvm-16 libbpf-dev

# $(call install,PROGRAMS,PACKAGES,WHAT HAPPENS OTHERWISE): as root on Debian and its kin,
# install the packages unless all programs are there.
install = @PATH=$$PATH:/sbin:/usr/sbin:/lib/systemd:/usr/lib/cni:/opt/cni/bin:/usr/libexec/cni; \
	for p in $(1); do command -v $$p >/dev/null || [ -e $$p ] || missing="$$missing $$p"; done; [ -z "$$missing" ] || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y --no-install-recommends $(2); \
	  else echo "missing:$$missing (packages $(2)): $(3)"; fi; }

# $(call fetch,PROGRAM,PACKAGE): take one program out of a Debian package into bin. The whole
# package would bring a server that starts with the machine, or many programs more.
fetch = @[ -x bin/$(1) ] || command -v $(1) >/dev/null || { command -v apt-get >/dev/null && \
	{ [ "$$(id -u)" != 0 ] || apt-get update -qq; } && mkdir -p bin && \
	d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && chmod 755 "$$d" && \
	(cd "$$d" && apt-get download -qq -o APT::Sandbox::User=root $(2) && dpkg-deb --fsys-tarfile $(2)_*.deb | tar -x ./usr/bin/$(1)) && \
	install -m 755 "$$d/usr/bin/$(1)" bin/; } || echo "missing: $(1) (package $(2)): tests that need it are skipped"

.DEFAULT_GOAL := help

##@ Everyday

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/kernosis (static, no cgo)
	$(GO_BUILD) -o $(BIN) ./cmd/kernosis

.PHONY: demo
demo: build demo-setup ## as root: inject real kernel faults, show each one detected and explained
	$(BIN) demo

# Lint vets the code. With the race detector tests take longer to build, and find more.
TESTRUN = @[ "$$(id -u)" = 0 ] || echo "not root: the tests on the real kernel are skipped"; \
	go run ./vmtest/testrun -packages "$(or $(PACKAGES),./...)" -slow $(SLOW) -again 2
# Nor do they need tables for a debugger, which take the linker a third of its time.
TESTFLAGS = -race -vet=off -ldflags=-w -timeout 75m
SLOW ?= 0

.PHONY: test
test: setup node-packages ## run the tests that give confidence before a commit; as root on the real kernel too
	$(TESTRUN) -build server,node -- $(TESTFLAGS) -short

.PHONY: test-all
test-all: setup node-packages promtool prometheus qemu-user ## run all tests of this machine
	$(TESTRUN) -build server,node,controllers,clients -- $(TESTFLAGS)

.PHONY: test-slow
test-slow: SLOW = 40
test-slow: test-all ## the same, and list the 40 slowest with what ran meanwhile

.PHONY: cover
cover: setup node-packages ## run the tests of make test without the race detector, and list what they cover by package, least first
	@mkdir -p bin; go test -short -vet=off -ldflags=-w -timeout 75m -cover ./... >bin/cover.txt || { grep -v '^ok' bin/cover.txt; exit 1; }
	@awk '/coverage: [0-9]/ {for (i = 1; i < NF; i++) if ($$i == "coverage:") print $$(i+1), ($$1 == "ok" ? $$2 : $$1)}' bin/cover.txt | sort -n

.PHONY: fresh
fresh: ## as root: run the README's two commands in a new Debian with nothing but Go, git and make
	vmtest/fresh.sh demo test

.PHONY: chaos
chaos: setup ## as root: harm a running agent at random and check what it reported; SEEDS=500 SEED=1 (docs/testing.md)
	mkdir -p bin/chaos
	go test -count=1 -timeout 24h -artifacts -outputdir bin/chaos ./cmd/kernosis/chaostest -run TestChaos -seeds $(or $(SEEDS),20) -seed $(or $(SEED),1)

.PHONY: soak
soak: setup ## as root: what happens to an agent in a day, in FOR=1h, and check that nothing of it grows (docs/testing.md)
	go test -count=1 -v -timeout 24h ./cmd/kernosis/chaostest -run TestSoak -soak $(or $(FOR),1h)

.PHONY: e2e
e2e: setup node-packages ## as root: install Kernosis by its chart on a real node, break things, upgrade, uninstall (docs/testing.md)
	go test -count=1 -v -timeout 15m ./deploy/e2e

.PHONY: fleet
fleet: ## run NODES (1000) agents and two controllers against an API server; REPORT=docs/fleet.md keeps the result
	go test -count=1 -v -timeout 3h ./vmtest/fleet -run TestFleet -nodes $(or $(NODES),1000) $(PHASES:%=-phases %) $(REPORT:%=-report %)

.PHONY: kube-tools
kube-tools: ## build the Kubernetes programs that the tests run, as root those of a node too, and helm, once (docs/testing.md)
	@go run ./vmtest/testrun build server clients $$([ "$$(id -u)" != 0 ] || echo node controllers) >/dev/null

.PHONY: node-packages
node-packages: ## install what a node needs besides kubelet; only root can run one
	$(if $(filter 0,$(shell id -u)),$(call install,containerd runc bridge ip,containerd runc containernetworking-plugins iproute2,the tests with a node fail))

.PHONY: promtool
promtool: ## fetch promtool into bin
	$(call fetch,promtool,prometheus)

.PHONY: prometheus
prometheus: ## fetch prometheus, and build alertmanager, which needs files of its package in Debian
	$(call fetch,prometheus,prometheus)
	@[ -x bin/alertmanager ] || go -C .tools/alertmanager build -o $(CURDIR)/bin/alertmanager github.com/prometheus/alertmanager/cmd/alertmanager || \
	echo "no alertmanager: the test that needs it is skipped"

.PHONY: qemu-user
qemu-user: ## fetch qemu-aarch64 into bin, to run the arm64 program
	$(if $(filter-out aarch64,$(shell uname -m)),$(call fetch,qemu-aarch64-static,qemu-user-static))

##@ Image and release (docs/image.md)

DIST      ?= dist
IMAGE     ?= kernosis/kernosis
PLATFORMS ?= linux/amd64 linux/arm64
# Time of the commit: when it is built makes no difference.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
BINARIES  = $(foreach p,$(PLATFORMS),$(DIST)/kernosis-$(subst /,-,$(p)))

# Nor does it make one who builds it, where, and with which settings of their own. The
# compiler is that of go.mod; Go fetches it where another one is installed.
TOOLCHAIN    := $(shell sed -n 's/^toolchain //p' go.mod)
REPRODUCIBLE := GOTOOLCHAIN=$(TOOLCHAIN) GOFLAGS=-trimpath GOEXPERIMENT= GOWORK=off GOFIPS140=off GOAMD64=v1 GOARM64=v8.0 CGO_ENABLED=0
PACK = $(REPRODUCIBLE) go run ./deploy/image -name $(IMAGE) -version $(VERSION) -revision '$(REVISION)' -created $(SOURCE_DATE_EPOCH)

.PHONY: binaries
binaries: ## static programs for all PLATFORMS in dist
	@for p in $(PLATFORMS); do \
	  echo "$(DIST)/kernosis-$${p%/*}-$${p#*/}"; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(REPRODUCIBLE) $(GO_BUILD) -o "$(DIST)/kernosis-$${p%/*}-$${p#*/}" ./cmd/kernosis || exit 1; \
	done

.PHONY: image
image: binaries ## container image for all PLATFORMS as an OCI archive in dist, and its SBOM; needs no registry
	@$(PACK) -archive $(DIST)/kernosis-image.tar -sbom $(DIST)/kernosis.cdx.json $(BINARIES)

.PHONY: image-root
image-root: binaries
	@$(PACK) -root $(ROOT) $(BINARIES)

.PHONY: release
release: image ## image, SBOM, programs, and the sums of all
	cd $(DIST) && sha256sum $(notdir $(BINARIES)) kernosis-image.tar kernosis.cdx.json >SHA256SUMS

##@ Quality

.PHONY: lint
lint: ## go vet, golangci-lint, formatting of Go and BPF C, workflows
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	go vet ./...
	go -C .tools/lint build -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run ./...
	go -C .tools/actionlint build -o $(CURDIR)/bin/actionlint github.com/rhysd/actionlint/cmd/actionlint
	bin/actionlint .github/workflows/*.yml

# The database is a module as well, so that a check says the same everywhere until it is updated:
# go -C .tools/vuln get golang.org/x/vulndb@latest
.PHONY: vuln
vuln: ## look for known vulnerabilities of the dependencies and of Go that the code reaches
	@mkdir -p bin && rm -rf bin/vulndb
	@go -C .tools/vuln build -o $(CURDIR)/bin/ golang.org/x/vuln/cmd/govulncheck golang.org/x/vulndb/cmd/indexdb
	@bin/indexdb -vulns "$$(go -C .tools/vuln list -m -f '{{.Dir}}' golang.org/x/vulndb)/data/osv" -out bin/vulndb
	GOTOOLCHAIN=$(TOOLCHAIN) bin/govulncheck -db file://$(CURDIR)/bin/vulndb ./...

.PHONY: npd
npd: ## build node-problem-detector, to measure beside the agent
	@[ -x bin/node-problem-detector ] || go -C .tools/node-problem-detector build -ldflags '-s -w' -o $(CURDIR)/bin/node-problem-detector k8s.io/node-problem-detector/cmd/nodeproblemdetector

.PHONY: benchstat
benchstat:
	@[ -x bin/benchstat ] || go -C .tools/benchstat build -o $(CURDIR)/bin/benchstat golang.org/x/perf/cmd/benchstat

# Those that run the agent for minutes: once. The others are measured COUNT times.
BENCH_LONG := BenchmarkPeers|BenchmarkIdle|BenchmarkCluster|BenchmarkDetectionLatency|BenchmarkLogLines
COUNT ?= 6

.PHONY: bench
bench: SHELL := bash
bench: .SHELLFLAGS := -eo pipefail -c
bench: npd benchstat ## benchmarks into bin/bench.txt, compared with docs/bench.txt; as root the BPF programs, the agent and node-problem-detector too
	@mkdir -p bin
	@{ printf 'commit: %s\nkernel: %s\nmemory: %s\n' "$(REVISION)" "$$(uname -r)" "$$(awk '/MemTotal/ {print $$2 " " $$3}' /proc/meminfo)"; \
	  go test -run '^$$' -bench . -skip '$(BENCH_LONG)' -benchmem -benchtime 200ms -count $(COUNT) -timeout 2h ./...; \
	  go test -run '^$$' -bench '$(BENCH_LONG)' -benchtime 1x -timeout 2h ./cmd/kernosis ./cmd/kernosis/agent; } | grep --line-buffered -v -e '^PASS$$' -e 'no test files' -e '^ok ' | tee bin/bench.txt
	@$(MAKE) -s bench-report

.PHONY: bench-report
bench-report: benchstat ## the agent beside node-problem-detector, and what changed since docs/bench.txt
	@bin/benchstat -filter '.name:Peers' -col /program bin/bench.txt
	@bin/benchstat -ignore commit,kernel,memory $(wildcard docs/bench.txt) bin/bench.txt

FUZZTIME ?= 20s
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	@start=$$(date +%s); n=0; failed=; \
	for target in $$(grep -r --include='*_test.go' --exclude-dir=.tools -o '^func Fuzz[A-Za-z0-9_]*' . | sed 's|/[^/]*:func |:|' | sort); do \
	  echo "$${target%:*} $${target#*:}"; n=$$((n + 1)); \
	  go test -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $${target%:*} || failed="$$failed $$target"; \
	done; \
	echo "$$n targets ran, in $$((($$(date +%s) - start) / 60)) minutes"; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

##@ Other kernels, in virtual machines

.PHONY: vmtest-setup
vmtest-setup: ## install qemu and what the machines hold (Debian and its kin, as root)
	$(call install,qemu-system-x86_64 qemu-system-aarch64 modprobe mkfs.ext4 mkfs.xfs mkfs.btrfs dmsetup nft runc /usr/share/keyrings/debian-archive-keyring.gpg,\
	  qemu-system-x86 qemu-system-arm kmod debian-archive-keyring e2fsprogs xfsprogs btrfs-progs dmsetup nftables runc,no virtual machines)

.PHONY: vmtest-tools
vmtest-tools: build
	go build -o bin/vmrun ./vmtest/vmrun
	go build -o bin/vmmatrix ./vmtest/vmmatrix
	GOARCH=arm64 go build -o bin/vmrun-arm64 ./vmtest/vmrun
	GOARCH=arm64 $(GO_BUILD) -o $(BIN)-arm64 ./cmd/kernosis

.PHONY: vmtest-kernels
vmtest-kernels: vmtest-setup vmtest-tools ## fetch the kernels of vmtest/kernels.txt, KERNEL= for some; nothing is installed
	bin/vmmatrix fetch -kernel "$(KERNEL)"

.PHONY: vmtest
vmtest: vmtest-setup vmtest-tools ## every fault on every kernel; KERNEL="5.10 7.2" and STEM=oomkill for some, AGAIN=1 for what failed
	bin/vmmatrix run -kernel "$(KERNEL)" -stem "$(STEM)" $(AGAIN:%=-again)

.PHONY: patterns
patterns: vmtest-setup vmtest-tools ## shipped patterns for the kernel's log against the format strings of kernels; fetches three
	bin/vmmatrix fetch -kernel "5.10 newest-generic rc"
	KERNOSIS_PATTERNS=1 go test -count=1 -run TestShippedPatterns ./vmtest/kernel

.PHONY: vmtest-report
vmtest-report: vmtest-setup vmtest-tools ## the same for all, and write docs/kernels.md
	bin/vmmatrix run -report docs/kernels.md $(AGAIN:%=-again)

.PHONY: vmtest-mutants
vmtest-mutants: vmtest-setup vmtest-tools clang ## break a program on purpose, and see the tests fail; on the newest kernel
	bin/vmmatrix mutants -kernel "$(or $(KERNEL),newest)" -stem "$(STEM)"

##@ BPF

.PHONY: clang
clang:
	@command -v clang-16 >/dev/null && [ -e /usr/include/bpf/bpf_helpers.h ] || { apt-get update -qq && apt-get install -y --no-install-recommends $(CLANG_PACKAGES); }

.PHONY: generate
generate: clang generate-api ## rebuild the BPF objects (installs clang-16 where it is missing), the CRDs and what goes with them
	go generate ./bpf/...

# The generator of deep copies knows no alias types, which the API's types have; without
# them as types of their own it sees what they stand for.
.PHONY: generate-api
generate-api: ## rebuild diagnose/api/crds and the deep copies from the types in diagnose/api
	go -C .tools/crds build -o $(CURDIR)/bin/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
	rm -f diagnose/api/crds/*.yaml
	GODEBUG=gotypesalias=0 bin/controller-gen object crd paths=./diagnose/api/... output:crd:dir=diagnose/api/crds

.PHONY: verify
verify: generate generate-deploy ## what is committed is what the sources give, and the BPF objects load on this kernel
	git diff --exit-code -- bpf deploy/chart diagnose/api/crds deploy/kustomize 'diagnose/api/*/zz_generated.*'
	test -z "$$(git ls-files --others --exclude-standard -- bpf deploy/chart diagnose/api/crds deploy/kustomize)"
	go test -count=1 -run 'TestEveryStemAttaches|TestWireLayout' ./bpf

##@ Deployment

.PHONY: helm
helm:
	@[ -x bin/helm ] && [ bin/helm -nt .tools/helm/go.mod ] || CGO_ENABLED=0 go -C .tools/helm build -trimpath -ldflags '-s -w' -o $(CURDIR)/bin/helm helm.sh/helm/v4/cmd/helm

# What the chart has of other folders, for Helm reads no file outside of it.
CHART := deploy/chart/kernosis
.PHONY: generate-deploy
generate-deploy: build helm ## dashboards and alerts from what makes them, the chart's copies and README, and deploy/kustomize from the chart
	rm -f $(CHART)/crds/*.yaml $(CHART)/files/sets/*.yaml $(CHART)/files/dashboards/*.json $(CHART)/files/alerts.yaml
	cp diagnose/api/crds/*.yaml $(CHART)/crds/
	cp diagnose/manifest/sets/*.yaml $(CHART)/files/sets/
	$(BIN) rules alerts --dashboard-base https://grafana.invalid >$(CHART)/files/alerts.yaml
	go run ./deploy/chart/generate -helm bin/helm

.PHONY: chart
chart: helm ## dist/kernosis-<version>.tgz, the chart, which asks for the image of this version
	mkdir -p dist
	bin/helm package $(CHART) --destination dist --app-version '$(VERSION:v%=%)'

##@ Documentation

.PHONY: site
site: ## build the documentation's site in dist/site; as root install mkdocs if missing
	$(call install,mkdocs,mkdocs,the site can't be built)
	mkdocs build --strict -f deploy/site/mkdocs.yml

##@ Housekeeping

.PHONY: setup
setup: ## install what the tests use: a C compiler for the race detector, filesystems, kmod, logrotate, journals, D-Bus
	$(call install,cc mkfs.ext4 mkfs.xfs mkfs.btrfs modprobe logrotate systemd-journal-remote dbus-daemon,\
	  gcc libc6-dev e2fsprogs xfsprogs btrfs-progs kmod logrotate systemd-journal-remote dbus-daemon,the tests that need them are skipped)

.PHONY: demo-setup
demo-setup:
	$(call install,mkfs.ext4,e2fsprogs,the faults of disks are left out)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
