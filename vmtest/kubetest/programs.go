package kubetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// ProgramsEnv names the environment variable with a folder that contains the programs already, so
// that nothing is built.
const ProgramsEnv = "KERNOSIS_KUBE_PROGRAMS"

// toolFolder contains the modules that pin the programs, relative to the root of the checkout.
const toolFolder = ".tools"

// program is a program of a tool module.
type program struct {
	name    string // its file name
	pkg     string // the package it is built from
	builtAs string // the name of go build's output
}

// set is a set of programs of a tool module, in a folder of its own, so that tests build only the
// sets they need.
type set struct {
	tool      string // folder of the module, and of its sets in the cache
	versioned string // the module whose version is built into the programs
	space     uint64 // bytes needed by a build with a cold cache
	all       []program

	// flags returns the value of -ldflags for a version.
	flags func(version string) string
}

// kubernetesSet returns a set of Kubernetes' programs. A build takes 2.4 GiB (measured), for
// sources, programs and temporary files; the space allows for more.
func kubernetesSet(names ...string) set {
	s := set{tool: "kubernetes", versioned: "k8s.io/kubernetes", space: 6 << 30, flags: linkerFlags}
	for _, name := range names {
		s.all = append(s.all, program{name: name, pkg: "k8s.io/kubernetes/cmd/" + name, builtAs: name})
	}
	return s
}

// buildFlags returns the flags of go build that do not depend on the version.
func buildFlags() []string { return []string{"-mod=readonly", "-trimpath"} }

// linkerFlags returns the linker flags of Kubernetes' programs. Without a version the server
// reports v0.0.0-master, which clients can't parse.
func linkerFlags(version string) string {
	const pkg = "k8s.io/component-base/version"
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitCommit=unknown -X %[1]s.gitTreeState=clean",
		pkg, version, major, minor)
}

// sets returns the sets of programs by name. Distributions do not package kubelet.
func sets() map[string]set {
	const helm, helm3 = "helm.sh/helm/v4", "helm.sh/helm/v3"
	server := kubernetesSet("kube-apiserver")
	server.all = append([]program{{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", builtAs: "server"}}, server.all...)
	return map[string]set{
		"server": server, "node": kubernetesSet("kubelet"), "controllers": kubernetesSet("kube-controller-manager", "kube-scheduler"),
		"kubectl": kubernetesSet("kubectl"),
		"helm": {
			tool: "helm", versioned: helm, space: 2 << 30, all: []program{{name: "helm", pkg: helm + "/cmd/helm", builtAs: "helm"}},
			flags: func(version string) string { return "-s -w -X " + helm + "/internal/version.version=" + version },
		},
		// It contains its own version; the version of client-go determines which version of
		// Kubernetes "helm template" renders for.
		"helm3": {
			tool: "helm3", versioned: "k8s.io/client-go", space: 2 << 30, all: []program{{name: "helm3", pkg: helm3 + "/cmd/helm", builtAs: "helm"}},
			flags: func(version string) string {
				minor, _, _ := strings.Cut(strings.TrimPrefix(version, "v0."), ".")
				return fmt.Sprintf("-s -w -X %[1]s/lint/rules.k8sVersionMajor=1 -X %[1]s/lint/rules.k8sVersionMinor=%[2]s -X %[1]s/chartutil.k8sVersionMajor=1 -X %[1]s/chartutil.k8sVersionMinor=%[2]s",
					helm3+"/pkg", minor)
			},
		},
	}
}

// Programs returns a folder with a set of programs: "server" (of a [Server]), "controllers" (what
// [Options.Controllers] adds), "node" (kubelet), "kubectl", "helm" or "helm3". It builds them unless
// the cache contains the programs of these sources and this Go version. The first build takes
// minutes and some GiB; Programs writes its progress to progress. Call it within the checkout. If
// several processes call it at once, one builds and the others wait.
func Programs(ctx context.Context, progress io.Writer, name string) (string, error) {
	s, ok := sets()[name]
	if !ok {
		return "", fmt.Errorf("unknown programs %q", name)
	}
	if dir := os.Getenv(ProgramsEnv); dir != "" {
		if !complete(dir, s) {
			return "", fmt.Errorf("%s: %s does not have %s", ProgramsEnv, dir, s)
		}
		return dir, nil
	}
	b, err := newBuild(ctx, progress, s)
	if err != nil {
		return "", err
	}
	return b.ensure(ctx)
}

// String returns the names of the programs.
func (s set) String() string {
	var all []string
	for _, p := range s.all {
		all = append(all, p.name)
	}
	return strings.Join(all, " and ")
}

// build builds a set of programs.
type build struct {
	set      set
	module   string // folder of the tool module
	cache    string // folder of all sets
	dir      string // folder of this one
	progress io.Writer

	// make fills a folder with the programs.
	make func(ctx context.Context, into string) error
}

func newBuild(ctx context.Context, progress io.Writer, set set) (*build, error) {
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("folder for the programs of tests: %w", err)
	}
	b := &build{
		set: set, module: filepath.Join(root, toolFolder, set.tool),
		cache: filepath.Join(user, "kernosis", set.tool), progress: progress,
	}
	key, err := b.key(ctx)
	if err != nil {
		return nil, err
	}
	b.dir = filepath.Join(b.cache, key)
	b.make = b.compile
	return b, nil
}

// checkout returns the root of the checkout, which is this folder or a parent.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, toolFolder, "kubernetes", "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no folder above %s: set %s, or run in the checkout", toolFolder, dir, ProgramsEnv)
		}
	}
}

// key returns a key that is equal for equal builds.
func (b *build) key(ctx context.Context) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(b.module, name))
		if err != nil {
			return "", err
		}
		_, _ = h.Write(text)
	}
	version, err := b.goCommand(ctx, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	_, _ = fmt.Fprintln(h, version, runtime.GOOS, runtime.GOARCH, buildFlags(), b.set.flags(""), b.set.all)
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// ensure returns the folder of the set, built if it does not exist.
func (b *build) ensure(ctx context.Context) (string, error) {
	if b.use() {
		return b.dir, nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", err
	}
	lock, err := testenv.LockFile(ctx, filepath.Join(b.cache, "lock"), func() {
		b.say("waiting for another build of %s", b.set)
	})
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if b.use() {
		return b.dir, nil
	}
	b.sweep(time.Now())
	tmp, err := os.MkdirTemp(b.cache, unfinished)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := b.make(ctx, tmp); err != nil {
		return "", err
	}
	if !complete(tmp, b.set) {
		return "", fmt.Errorf("go build in %s left programs out", b.module)
	}
	// MkdirTemp's folder is for its owner only, but another user may run the programs.
	if err := errors.Join(os.Chmod(tmp, 0o755), os.RemoveAll(b.dir), os.Rename(tmp, b.dir)); err != nil {
		return "", err
	}
	return b.dir, nil
}

// compile builds all programs with one command, so that one is linked while another is still
// compiled.
func (b *build) compile(ctx context.Context, into string) error {
	if err := b.checkSpace(ctx); err != nil {
		return err
	}
	version, err := b.goCommand(ctx, "list", "-mod=readonly", "-m", "-f", "{{.Version}}", b.set.versioned)
	if err != nil {
		return err
	}
	b.say("building %s (%s %s) into %s; the first time this takes minutes", b.set, b.set.versioned, version, b.dir)
	args := append([]string{"build"}, buildFlags()...)
	args = append(args, "-ldflags", b.set.flags(version), "-o", into+string(filepath.Separator))
	for _, p := range b.set.all {
		args = append(args, p.pkg)
	}
	start := time.Now()
	if _, err := b.goCommand(ctx, args...); err != nil {
		return err
	}
	for _, p := range b.set.all {
		if err := os.Rename(filepath.Join(into, p.builtAs), filepath.Join(into, p.name)); err != nil {
			return err
		}
	}
	b.say("built in %s", time.Since(start).Round(time.Second))
	return nil
}

// goCommand runs the go command in the tool module and returns its output.
func (b *build) goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.module
	// The programs run on this machine, even if the product is being built for another platform.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s", args[0], b.module, err, process.LastLines(stderr.Bytes(), 20))
	}
	return strings.TrimSpace(stdout.String()), nil
}

func (b *build) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "kubetest: "+format+"\n", args...)
}
