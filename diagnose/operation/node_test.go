package operation

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// keptArtifacts keeps what an operation writes.
type keptArtifacts struct {
	mu    sync.Mutex
	files map[string]string
	limit int // bytes of one file; 0: none
}

type keptFile struct {
	bytes.Buffer
	name string
	of   *keptArtifacts
}

func (k *keptArtifacts) Create(name string) (io.WriteCloser, error) {
	return &keptFile{name: name, of: k}, nil
}

func (f *keptFile) Write(b []byte) (int, error) {
	if f.of.limit > 0 && f.Len()+len(b) > f.of.limit {
		return 0, ErrArtifactBudget
	}
	return f.Buffer.Write(b)
}

func (f *keptFile) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.of.files == nil {
		f.of.files = map[string]string{}
	}
	f.of.files[f.name] = f.String()
	return nil
}

// perform runs a built-in as the runner does, and checks what every one must keep to.
func perform(t *testing.T, b Builtin, parameters map[string]string) (Output, *keptArtifacts, error) {
	t.Helper()
	values, err := b.Fill(parameters)
	if err != nil {
		t.Fatal(err)
	}
	kept := &keptArtifacts{}
	out, err := b.Run(t.Context(), &Call{Parameters: values, Artifacts: kept, Log: slog.New(slog.DiscardHandler)})
	checkOutput(t, &b, out)
	if no, ok := errors.AsType[*Refuted](err); ok {
		if b.Effect != Check || no.Reason == "" || no.Message == "" || len(no.Message) > 1100 || strings.Contains(no.Message, "\n") {
			t.Errorf("%s is refuted: %+v", b.Name, no)
		}
	} else if err == nil && b.Effect == Check && out.Verdict == nil {
		t.Errorf("%s succeeded without a verdict", b.Name)
	}
	return out, kept, err
}

func checkOutput(t *testing.T, b *Builtin, out Output) {
	t.Helper()
	all := 0
	for key, value := range out.Results {
		if !slices.ContainsFunc(b.Results, func(r Result) bool { return r.Name == key }) {
			t.Errorf("%s: result %s is not declared", b.Name, key)
		}
		if all += len(key) + len(value); len(value) > 2<<10 || strings.ContainsAny(value, "\n\x1b") {
			t.Errorf("%s: result %s: %q", b.Name, key, value)
		}
	}
	if all > 8<<10 {
		t.Errorf("%s: %d bytes of results", b.Name, all)
	}
	if v := out.Verdict; v != nil && (v.Reason == "" || v.Message == "" || len(v.Message) > 1100 || strings.Contains(v.Message, "\n")) {
		t.Errorf("%s: verdict %+v", b.Name, v)
	}
}

// succeed is perform of one that must.
func succeed(t *testing.T, b Builtin, parameters map[string]string) (Output, *keptArtifacts) {
	t.Helper()
	out, kept, err := perform(t, b, parameters)
	if err != nil {
		t.Fatalf("%s: %v", b.Name, err)
	}
	return out, kept
}

// refuse is perform of a Check whose answer must be no.
func refuse(t *testing.T, b Builtin, parameters map[string]string) *Refuted {
	t.Helper()
	out, _, err := perform(t, b, parameters)
	var no *Refuted
	if !errors.As(err, &no) {
		t.Fatalf("%s: %+v, %v; want a refutation", b.Name, out, err)
	}
	return no
}

// realHost is this machine.
func realHost() Host {
	fs := hostfs.New("/")
	return Host{FS: fs, Symbols: hostfs.NewSymbols(fs)}
}

// hostOf makes a node of files: path to content; "-> target" makes a link.
func hostOf(t *testing.T, files map[string]string) Host {
	t.Helper()
	root := t.TempDir()
	for p, content := range files {
		p = filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, p)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fs := hostfs.New(root)
	return Host{FS: fs, Symbols: hostfs.NewSymbols(fs)}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// nodeBuiltins are those about the node itself.
func nodeBuiltins(h Host) []Builtin {
	return []Builtin{
		BlockedStacks(h), CgroupMemory(h), CheckDiskFailing(h), CheckDiskStalled(h), CheckFilesystemErrors(h), CheckFilesystemFrozen(h),
		CheckFilesystemReadonly(h), CheckLimitTooLow(h), CheckLockHolder(h), CheckMemoryLeak(h), CheckNFSHang(h), CheckNodeOvercommitted(h),
		DiskErrors(h), DiskIdentity(h), KernelFacts(h), KmsgTail(h), Mounts(h), OpenFiles(h), ProcessDetail(h), ProcessTree(h), Smart(h),
	}
}

// Whatever it looks at, a run ends with its context.
func TestRunsEndWithTheirContext(t *testing.T) {
	for _, b := range nodeBuiltins(realHost()) {
		values, err := b.Fill(map[string]string{"pid": strconv.Itoa(os.Getpid()), "window": "1m", "mountPoint": "/"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errRunIsOver)
		began := time.Now()
		_, err = b.Run(ctx, &Call{Parameters: values, Artifacts: &keptArtifacts{}})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s: %v", b.Name, took, err)
		}
		cancel()
		if values["window"] == "1m" && !errors.Is(err, errRunIsOver) {
			if no, ok := errors.AsType[*Refuted](err); !ok || no.Reason != "NoMemoryLimit" && no.Reason != "NoNFSMount" {
				t.Errorf("%s: %v", b.Name, err)
			}
		}
	}
}

// Without anything to look at a run says what it lacks, and does not fall over.
func TestRunsOnAnEmptyNode(t *testing.T) {
	h := hostOf(t, map[string]string{"/proc/version": "", "/sys/block/x": ""})
	for _, b := range nodeBuiltins(h) {
		out, _, err := perform(t, b, map[string]string{"pid": "1", "device": "sda"})
		t.Logf("%s: %v %v", b.Name, out.Results, err)
		if err == nil && b.Effect == Check {
			t.Errorf("%s succeeds: %+v", b.Name, out)
		}
	}
}
