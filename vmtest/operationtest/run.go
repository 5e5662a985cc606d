// Package operationtest runs operations as the runner does, on this machine or on a simulated node
// made of files. Only tests may import it.
package operationtest

import (
	"bytes"
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
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Longest is how long anything may take on a busy machine.
const Longest = 60 * time.Second

// Artifacts stores the files that an operation writes.
type Artifacts struct {
	mu    sync.Mutex
	Files map[string]string
	Limit int   // maximum size of a file in bytes; 0 for none
	Err   error // returned by each Create
}

type artifact struct {
	bytes.Buffer
	name string
	of   *Artifacts
}

func (k *Artifacts) Create(name string) (io.WriteCloser, error) {
	if k.Err != nil {
		return nil, k.Err
	}
	return &artifact{name: name, of: k}, nil
}

func (f *artifact) Write(b []byte) (int, error) {
	if f.of.Limit > 0 && f.Len()+len(b) > f.of.Limit {
		return 0, operation.ErrArtifactBudget
	}
	return f.Buffer.Write(b)
}

func (f *artifact) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.of.Files == nil {
		f.of.Files = map[string]string{}
	}
	f.of.Files[f.name] = f.String()
	return nil
}

// Read returns a file that an operation has written and closed.
func (k *Artifacts) Read(t *testing.T, name string) string {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	text, ok := k.Files[name]
	if !ok {
		t.Fatalf("no artifact %s", name)
	}
	return text
}

// NewCall returns a call, together with the artifacts and the log that it will write to.
func NewCall(parameters operation.Values) (*operation.Call, *Artifacts, *bytes.Buffer) {
	var log bytes.Buffer
	kept := &Artifacts{}
	return &operation.Call{Parameters: parameters, Artifacts: kept, Log: slog.New(slog.NewTextHandler(&log, nil))}, kept, &log
}

// Perform runs a built-in as the runner does, and checks the rules for all built-ins.
func Perform(t *testing.T, b operation.Builtin, parameters map[string]string) (operation.Output, *Artifacts, error) {
	t.Helper()
	values, err := b.Fill(parameters)
	if err != nil {
		t.Fatal(err)
	}
	call, kept, _ := NewCall(values)
	out, err := b.Run(t.Context(), call)
	checkOutput(t, &b, out)
	if no, ok := errors.AsType[*operation.Refuted](err); ok {
		if b.Effect != operation.Check || no.Reason == "" || no.Message == "" || len(no.Message) > 1100 || strings.Contains(no.Message, "\n") {
			t.Errorf("%s is refuted: %+v", b.Name, no)
		}
	} else if err == nil && b.Effect == operation.Check && out.Verdict == nil {
		t.Errorf("%s succeeded without a verdict", b.Name)
	}
	return out, kept, err
}

func checkOutput(t *testing.T, b *operation.Builtin, out operation.Output) {
	t.Helper()
	all := 0
	for key, value := range out.Results {
		if !slices.ContainsFunc(b.Results, func(r operation.Result) bool { return r.Name == key }) {
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

// Succeed is Perform for a built-in that must succeed.
func Succeed(t *testing.T, b operation.Builtin, parameters map[string]string) (operation.Output, *Artifacts) {
	t.Helper()
	out, kept, err := Perform(t, b, parameters)
	if err != nil {
		t.Fatalf("%s: %v", b.Name, err)
	}
	return out, kept
}

// Refuse is Perform for a Check that must be refuted.
func Refuse(t *testing.T, b operation.Builtin, parameters map[string]string) *operation.Refuted {
	t.Helper()
	out, _, err := Perform(t, b, parameters)
	var no *operation.Refuted
	if !errors.As(err, &no) {
		t.Fatalf("%s: %+v, %v; want a refutation", b.Name, out, err)
	}
	return no
}

// OutcomeUnknown reports whether an error is an [operation.OutcomeUnknown].
func OutcomeUnknown(err error) bool {
	_, ok := errors.AsType[*operation.OutcomeUnknown](err)
	return ok
}

// RealHost returns this machine.
func RealHost() operation.Host {
	return operation.Host{FS: hostfs.New("/")}
}

// HostOf creates a node of files, given as path to content; "-> target" creates a link.
func HostOf(t *testing.T, files map[string]string) operation.Host {
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
	return operation.Host{FS: hostfs.New(root)}
}

func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func Mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Number returns a result that must be a number.
func Number(t *testing.T, out operation.Output, key string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(out.Results[key], 10, 64)
	if err != nil {
		t.Errorf("%s: %v in %v", key, err, out.Results)
	}
	return n
}
