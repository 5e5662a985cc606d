# Kernosis. "make" lists the targets.

BIN     := bin/kernosis
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION ?= $(shell git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)

# grpc's tracing page would bring html/template, whose calls of methods by name keep
# every method of every type in the program: 20 MiB. What Go would note of the checkout
# differs from that of an unpacked archive; the version and revision above say it.
GO_BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '$(LDFLAGS)'

# The compiler that the committed objects were made with.
CLANG_PACKAGES := clang-16 llvm-16 libbpf-dev

# What tests and the demo use besides Go: ext4 images, rotations of logs, message buses,
# journal files. Network namespaces are made through netlink.
TEST_PACKAGES := e2fsprogs logrotate systemd-journal-remote dbus-daemon kmod

.DEFAULT_GOAL := help

##@ Everyday

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/kernosis (static, no cgo)
	$(GO_BUILD) -o $(BIN) ./cmd/kernosis

.PHONY: demo
demo: build setup ## as root: inject real kernel faults, show each one detected and explained
	$(BIN) demo

.PHONY: test
test: setup kube-tools node-packages promtool prometheus qemu-user ## run all tests; as root also those on the real kernel
	@if [ "$$(id -u)" != 0 ]; then echo "not root: the tests on the real kernel are skipped"; fi
	# One package at a time: they count faults of the one kernel they share, and on
	# some machines a busy host hides single ones (docs/kernel-quirks.md).
	go test -race -p 1 -timeout 15m ./...

.PHONY: e2e
e2e: setup kube-tools node-packages ## as root: install Kernosis by its chart on a real node, break things, upgrade, uninstall (docs/testing.md)
	go test -count=1 -v -timeout 15m ./deploy/e2e

.PHONY: kube-tools
kube-tools: ## build the Kubernetes programs that the tests run, as root those of a node too, and helm, once (docs/testing.md)
	@go run ./reporter/kubetest/kubetools -clients $$([ "$$(id -u)" != 0 ] || echo -node -controllers) >/dev/null

# What a node is made of besides kubelet; only root can run one.
NODE_PACKAGES := containerd runc containernetworking-plugins

.PHONY: node-packages
node-packages: ## install what the tests with a node need (Debian and its kin, as root)
	@[ "$$(id -u)" = 0 ] || exit 0; PATH=$$PATH:/sbin:/usr/sbin; \
	for p in containerd runc; do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	[ -x /usr/lib/cni/bridge ] || [ -x /opt/cni/bin/bridge ] || [ -x /usr/libexec/cni/bridge ] || missing="$$missing CNI plugins"; \
	[ -z "$$missing" ] || { \
	  if command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y --no-install-recommends $(NODE_PACKAGES); \
	  else echo "missing:$$missing (packages $(NODE_PACKAGES)): the tests with a node fail"; fi; }

# Only this one program is taken from the package: installed, it would bring a server
# that starts with the machine.
.PHONY: promtool
promtool: ## fetch promtool into bin, where it is not installed (Debian and its kin)
	@if command -v promtool >/dev/null || [ -x bin/promtool ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "missing: promtool (package prometheus): the test that needs it is skipped"; exit 0; fi; \
	[ "$$(id -u)" != 0 ] || apt-get update -qq; \
	d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && chmod 755 "$$d" && mkdir -p bin && \
	(cd "$$d" && apt-get download -qq -o APT::Sandbox::User=root prometheus) && \
	dpkg-deb --fsys-tarfile "$$d"/prometheus_*.deb | tar -xO ./usr/bin/promtool >"$$d/promtool" && \
	install -m 755 "$$d/promtool" bin/promtool || \
	{ rm -f bin/promtool; echo "no promtool (package prometheus): the test that needs it is skipped"; }

# Likewise. Debian's alertmanager needs files of its package, so that is built.
.PHONY: prometheus
prometheus: ## fetch prometheus (Debian and its kin) and build alertmanager into bin, where they are not
	@[ -x bin/alertmanager ] || go -C .tools/alertmanager build -o $(CURDIR)/bin/alertmanager github.com/prometheus/alertmanager/cmd/alertmanager || \
	echo "no alertmanager: the test that needs it is skipped"
	@if [ -x bin/prometheus ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "missing: prometheus: the test that needs it is skipped"; exit 0; fi; \
	[ "$$(id -u)" != 0 ] || apt-get update -qq; \
	d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && chmod 755 "$$d" && mkdir -p bin && \
	(cd "$$d" && apt-get download -qq -o APT::Sandbox::User=root prometheus) && \
	dpkg-deb --fsys-tarfile "$$d"/prometheus_*.deb | tar -xO ./usr/bin/prometheus >"$$d/prometheus" && \
	install -m 755 "$$d/prometheus" bin/prometheus || \
	{ rm -f bin/prometheus; echo "no prometheus: the test that needs it is skipped"; }

# Likewise: the package has programs for two dozen processors.
.PHONY: qemu-user
qemu-user: ## fetch qemu-aarch64 into bin, where it is not installed (Debian and its kin)
	@if [ "$$(uname -m)" = aarch64 ] || command -v qemu-aarch64-static qemu-aarch64 >/dev/null || [ -x bin/qemu-aarch64-static ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "missing: qemu-aarch64 (package qemu-user-static): the test that needs it is skipped"; exit 0; fi; \
	[ "$$(id -u)" != 0 ] || apt-get update -qq; \
	d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && chmod 755 "$$d" && mkdir -p bin && \
	(cd "$$d" && apt-get download -qq -o APT::Sandbox::User=root qemu-user-static) && \
	dpkg-deb --fsys-tarfile "$$d"/qemu-user-static_*.deb | tar -xO ./usr/bin/qemu-aarch64-static >"$$d/qemu-aarch64-static" && \
	install -m 755 "$$d/qemu-aarch64-static" bin/qemu-aarch64-static || \
	{ rm -f bin/qemu-aarch64-static; echo "no qemu-aarch64 (package qemu-user-static): the test that needs it is skipped"; }

##@ Image and release (docs/image.md)

DIST      ?= dist
IMAGE     ?= kernosis/kernosis
PLATFORMS ?= linux/amd64 linux/arm64
# Time of the commit: when it is built makes no difference.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
BINARIES  = $(foreach p,$(PLATFORMS),$(DIST)/kernosis-$(subst /,-,$(p)))

# Nor does it make one who builds it, where, and with which settings of their own. The
# compiler is that of go.mod; Go fetches it where another one is installed.
REPRODUCIBLE := GOTOOLCHAIN=go$(shell sed -n 's/^go //p' go.mod) GOFLAGS=-trimpath GOEXPERIMENT= GOWORK=off GOFIPS140=off GOAMD64=v1 GOARM64=v8.0 CGO_ENABLED=0
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
lint: ## go vet, golangci-lint, formatting of Go and BPF C
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	go vet ./...
	go -C .tools/lint build -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run ./...

.PHONY: bench
bench: ## benchmarks, with the kernel's own BPF statistics as root
	go test -run '^$$' -bench . -benchmem ./...

FUZZTIME ?= 20s
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	@go list ./... | while read -r pkg; do \
	  go test -list '^Fuzz' $$pkg | grep '^Fuzz' | while read -r f; do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$pkg || exit 1; \
	  done || exit 1; done

##@ Other kernels, in virtual machines

# What the machines are made of, and what their tests use inside.
VMTEST_PACKAGES := qemu-system-x86 kmod debian-archive-keyring e2fsprogs xfsprogs btrfs-progs dmsetup nftables

.PHONY: vmtest-setup
vmtest-setup: ## install qemu and what the machines hold (Debian and its kin, as root)
	@PATH=$$PATH:/sbin:/usr/sbin; for p in qemu-system-x86_64 modprobe mkfs.ext4 mkfs.xfs mkfs.btrfs dmsetup nft; do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$$missing debian-archive-keyring"; \
	[ -z "$$missing" ] && exit; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y --no-install-recommends $(VMTEST_PACKAGES); \
	else echo "missing:$$missing; install $(VMTEST_PACKAGES)"; exit 2; fi

.PHONY: vmtest-tools
vmtest-tools: build
	CGO_ENABLED=0 go build -o bin/vmrun ./vmtest/vmrun
	CGO_ENABLED=0 go build -o bin/vmmatrix ./vmtest/vmmatrix

.PHONY: vmtest-kernels
vmtest-kernels: vmtest-setup vmtest-tools ## fetch the kernels of vmtest/kernels.txt, KERNEL= for some; nothing is installed
	bin/vmmatrix fetch -kernel "$(KERNEL)"

.PHONY: vmtest
vmtest: vmtest-setup vmtest-tools ## every fault on every kernel; KERNEL="5.10 7.2" and STEM=oomkill for some, AGAIN=1 for what failed
	bin/vmmatrix run -kernel "$(KERNEL)" -stem "$(STEM)" $(AGAIN:%=-again)

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
generate-api: ## rebuild deploy/crds and the deep copies from the types in diagnose/api
	go -C .tools/crds build -o $(CURDIR)/bin/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
	rm -f deploy/crds/*.yaml
	GODEBUG=gotypesalias=0 bin/controller-gen object crd paths=./diagnose/api/... output:crd:dir=deploy/crds

.PHONY: verify
verify: generate generate-deploy ## what is committed is what the sources give, and the BPF objects load on this kernel
	git diff --exit-code -- bpf deploy/alerts deploy/chart deploy/crds deploy/grafana deploy/kustomize 'diagnose/api/*/zz_generated.*'
	test -z "$$(git ls-files --others --exclude-standard -- bpf deploy/alerts deploy/chart deploy/crds deploy/grafana deploy/kustomize)"
	go test -count=1 -run 'TestEveryStemAttaches|TestWireLayout' ./bpf

##@ Deployment

.PHONY: helm
helm:
	@[ -x bin/helm ] && [ bin/helm -nt .tools/helm/go.mod ] || CGO_ENABLED=0 go -C .tools/helm build -trimpath -ldflags '-s -w' -o $(CURDIR)/bin/helm helm.sh/helm/v4/cmd/helm

# What the chart has of other folders, for Helm reads no file outside of it.
CHART := deploy/chart/kernosis
.PHONY: generate-deploy
generate-deploy: build helm ## dashboards and alerts from what makes them, the chart's copies, and deploy/kustomize from the chart
	go run ./deploy/grafana/gen deploy/grafana
	$(BIN) rules alerts >deploy/alerts/kernosis.rules.yaml
	rm -f $(CHART)/crds/*.yaml $(CHART)/files/sets/*.yaml $(CHART)/files/dashboards/*.json $(CHART)/files/alerts.yaml
	cp deploy/crds/*.yaml $(CHART)/crds/
	cp diagnose/sets/*.yaml $(CHART)/files/sets/
	mkdir -p $(CHART)/files/dashboards
	cp deploy/grafana/*.json $(CHART)/files/dashboards/
	cp deploy/alerts/kernosis.rules.yaml $(CHART)/files/alerts.yaml
	go run ./deploy/chart/generate -helm bin/helm

.PHONY: chart
chart: helm ## dist/kernosis-<version>.tgz, the chart, which asks for the image of this version
	mkdir -p dist
	bin/helm package $(CHART) --destination dist --app-version '$(VERSION)'

##@ Housekeeping

.PHONY: setup
setup: ## install what tests and the demo need (Debian and its kin, as root)
	@PATH=$$PATH:/sbin:/usr/sbin:/lib/systemd; for p in mkfs.ext4 logrotate systemd-journal-remote dbus-daemon modprobe; do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	[ -z "$$missing" ] || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y --no-install-recommends $(TEST_PACKAGES); \
	  else echo "missing:$$missing (packages $(TEST_PACKAGES)): the tests and faults that need them are skipped"; fi; }

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
