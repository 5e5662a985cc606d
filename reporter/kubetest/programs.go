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
)

// ProgramsEnv names the environment variable with a folder that has the programs
// already; nothing is built then.
const ProgramsEnv = "KERNOSIS_KUBE_PROGRAMS"

// toolModule is the folder that pins the programs, from the root of the checkout.
const toolModule = ".tools/kubernetes"

// program is one that a server consists of.
type program struct {
	name    string // of its file
	pkg     string // what it is built from
	builtAs string // the name that go build gives it
}

func programs() []program {
	return []program{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", builtAs: "server"},
		{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", builtAs: "kube-apiserver"},
	}
}

// buildFlags are those of go build that do not depend on the version.
func buildFlags() []string { return []string{"-mod=readonly", "-trimpath"} }

// linkerFlags returns the value of -ldflags. Without the version the server calls
// itself v0.0.0-master, which clients can't parse.
func linkerFlags(version string) string {
	const pkg = "k8s.io/component-base/version"
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitCommit=unknown -X %[1]s.gitTreeState=clean",
		pkg, version, major, minor)
}

// Programs returns a folder with etcd and kube-apiserver. Where the cache has
// none made of these sources by this Go, it builds them, which takes minutes and
// some GiB the first time; what it does meanwhile goes to progress. It is called
// from within the checkout. Several processes may call it at once: one builds, the
// others wait.
func Programs(ctx context.Context, progress io.Writer) (string, error) {
	if dir := os.Getenv(ProgramsEnv); dir != "" {
		if !complete(dir) {
			return "", fmt.Errorf("%s: %s does not have all the programs", ProgramsEnv, dir)
		}
		return dir, nil
	}
	b, err := newBuild(ctx, progress)
	if err != nil {
		return "", err
	}
	return b.ensure(ctx)
}

// build is the making of one set of programs.
type build struct {
	module   string // folder of the tool module
	cache    string // folder of all sets
	dir      string // folder of this one
	progress io.Writer

	// make fills a folder with the programs.
	make func(ctx context.Context, into string) error
}

func newBuild(ctx context.Context, progress io.Writer) (*build, error) {
	module, err := findModule()
	if err != nil {
		return nil, err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("folder for the Kubernetes programs: %w", err)
	}
	b := &build{module: module, cache: filepath.Join(user, "kernosis", "kubernetes"), progress: progress}
	key, err := b.key(ctx)
	if err != nil {
		return nil, err
	}
	b.dir = filepath.Join(b.cache, key)
	b.make = b.compile
	return b, nil
}

// findModule looks for the tool module in the folders above this one.
func findModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		module := filepath.Join(at, toolModule)
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no folder above %s: set %s, or run in the checkout", toolModule, dir, ProgramsEnv)
		}
	}
}

// key is the same for programs that would be built alike.
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
	_, _ = fmt.Fprintln(h, version, runtime.GOOS, runtime.GOARCH, buildFlags(), linkerFlags(""), programs())
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// ensure returns the folder of the set, made where it was not there.
func (b *build) ensure(ctx context.Context) (string, error) {
	if b.use() {
		return b.dir, nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", err
	}
	lock, err := lockFile(ctx, filepath.Join(b.cache, "lock"), func() {
		b.say("waiting for another build of etcd and kube-apiserver")
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
	if !complete(tmp) {
		return "", fmt.Errorf("go build in %s left programs out", b.module)
	}
	// Another user may run them: a folder of MkdirTemp is for its owner alone.
	if err := errors.Join(os.Chmod(tmp, 0o755), os.RemoveAll(b.dir), os.Rename(tmp, b.dir)); err != nil {
		return "", err
	}
	return b.dir, nil
}

// compile builds all programs by one command, so that one is linked while another
// is still being compiled.
func (b *build) compile(ctx context.Context, into string) error {
	if err := b.checkSpace(ctx); err != nil {
		return err
	}
	version, err := b.goCommand(ctx, "list", "-mod=readonly", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	b.say("building etcd and kube-apiserver %s into %s; the first time this takes about five minutes", version, b.dir)
	args := append([]string{"build"}, buildFlags()...)
	args = append(args, "-ldflags", linkerFlags(version), "-o", into+string(filepath.Separator))
	for _, p := range programs() {
		args = append(args, p.pkg)
	}
	start := time.Now()
	if _, err := b.goCommand(ctx, args...); err != nil {
		return err
	}
	for _, p := range programs() {
		if err := os.Rename(filepath.Join(into, p.builtAs), filepath.Join(into, p.name)); err != nil {
			return err
		}
	}
	b.say("built in %s", time.Since(start).Round(time.Second))
	return nil
}

// goCommand runs the go command in the tool module, and returns what it prints.
func (b *build) goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.module
	// The programs run here, whatever the product is being built for.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s", args[0], b.module, err, lastLines(stderr.Bytes(), 20))
	}
	return strings.TrimSpace(stdout.String()), nil
}

func (b *build) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "kubetest: "+format+"\n", args...)
}
