package operation

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// longest is how long anything may take on a busy machine.
const longest = 60 * time.Second

// memory keeps artifacts for a test.
type memory struct {
	mu    sync.Mutex
	files map[string]string
	err   error // of each Create
}

func (m *memory) Create(name string) (io.WriteCloser, error) {
	if m.err != nil {
		return nil, m.err
	}
	return &memoryFile{to: m, name: name}, nil
}

type memoryFile struct {
	bytes.Buffer
	to   *memory
	name string
}

func (f *memoryFile) Close() error {
	f.to.mu.Lock()
	defer f.to.mu.Unlock()
	if f.to.files == nil {
		f.to.files = map[string]string{}
	}
	f.to.files[f.name] = f.String()
	return nil
}

// newCall returns a call whose artifacts and log can be looked at.
func newCall(parameters Values) (*Call, *memory, *bytes.Buffer) {
	var log bytes.Buffer
	kept := &memory{}
	return &Call{Parameters: parameters, Artifacts: kept, Log: slog.New(slog.NewTextHandler(&log, nil))}, kept, &log
}

// runBuiltin fills in the parameters and runs the built-in.
func runBuiltin(t *testing.T, b Builtin, parameters map[string]string) (Output, *memory, error) {
	t.Helper()
	values, err := b.Fill(parameters)
	if err != nil {
		t.Fatal(err)
	}
	call, kept, _ := newCall(values)
	out, err := b.Do(t.Context(), call)
	return out, kept, err
}

// silent listens on a unix socket, answers the first bytes with text, and then takes all
// and says nothing.
func silent(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 1024)); err == nil {
					_, _ = io.WriteString(c, text)
					_, _ = io.Copy(io.Discard, c)
				}
			})
		}
	})
}
