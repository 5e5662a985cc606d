# Kernosis. "make" lists the targets.

BIN     := bin/kernosis
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# The compiler that the committed objects were made with.
CLANG_PACKAGES := clang-16 llvm-16 libbpf-dev

# What tests and the demo use besides Go: ext4 images, rotations of logs, message buses,
# journal files. Network namespaces are made through netlink.
TEST_PACKAGES := e2fsprogs logrotate systemd-journal-remote dbus-daemon

.DEFAULT_GOAL := help

##@ Everyday

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/kernosis (static, no cgo)
	# grpc's tracing page would bring html/template, whose calls of methods by name keep
	# every method of every type in the program: 20 MiB.
	CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/kernosis

.PHONY: demo
demo: build setup ## as root: inject real kernel faults, show each one detected and explained
	$(BIN) demo

.PHONY: test
test: setup kube-tools promtool prometheus ## run all tests; as root also those on the real kernel
	@if [ "$$(id -u)" != 0 ]; then echo "not root: the tests on the real kernel are skipped"; fi
	# One package at a time: they count faults of the one kernel they share, and on
	# some machines a busy host hides single ones (docs/kernel-quirks.md).
	go test -race -p 1 -timeout 15m ./...

.PHONY: kube-tools
kube-tools: ## build etcd and kube-apiserver for the tests, once (docs/testing.md)
	@go run ./reporter/kubetest/kubetools >/dev/null

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
vmtest: vmtest-setup vmtest-tools ## every fault on every kernel; KERNEL="5.10 7.2" and STEM=oomkill for some
	bin/vmmatrix run -kernel "$(KERNEL)" -stem "$(STEM)"

.PHONY: vmtest-report
vmtest-report: vmtest-setup vmtest-tools ## the same for all, and write docs/kernels.md
	bin/vmmatrix run -report docs/kernels.md

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
verify: generate ## what is committed is what the sources give, and the BPF objects load on this kernel
	git diff --exit-code -- bpf deploy/crds 'diagnose/api/*/zz_generated.*'
	test -z "$$(git ls-files --others --exclude-standard -- bpf deploy/crds)"
	go test -count=1 -run 'TestEveryStemAttaches|TestWireLayout' ./bpf

##@ Housekeeping

.PHONY: setup
setup: ## install what tests and the demo need (Debian and its kin, as root)
	@PATH=$$PATH:/sbin:/usr/sbin:/lib/systemd; for p in mkfs.ext4 logrotate systemd-journal-remote dbus-daemon; do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	[ -z "$$missing" ] || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y --no-install-recommends $(TEST_PACKAGES); \
	  else echo "missing:$$missing (packages $(TEST_PACKAGES)): the tests and faults that need them are skipped"; fi; }

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
