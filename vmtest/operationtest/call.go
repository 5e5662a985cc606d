package operationtest

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

	"github.com/kernosis/kernosis/diagnose/operation"
)

// Longest is how long anything may take on a busy machine.
const Longest = 60 * time.Second

// NewCall returns a call, together with the artifacts and the log that it will write to.
func NewCall(parameters operation.Values) (*operation.Call, *Artifacts, *bytes.Buffer) {
	var log bytes.Buffer
	kept := &Artifacts{}
	return &operation.Call{Parameters: parameters, Artifacts: kept, Log: slog.New(slog.NewTextHandler(&log, nil))}, kept, &log
}

// RunBuiltin fills in the parameters and runs the built-in.
func RunBuiltin(t *testing.T, b operation.Builtin, parameters map[string]string) (operation.Output, *Artifacts, error) {
	t.Helper()
	values, err := b.Fill(parameters)
	if err != nil {
		t.Fatal(err)
	}
	call, kept, _ := NewCall(values)
	out, err := b.Do(t.Context(), call)
	return out, kept, err
}

// Silent listens on a unix socket, responds to the first bytes with text, and then reads everything
// without responding.
func Silent(t *testing.T, path, text string) {
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
