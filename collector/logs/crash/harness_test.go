package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// Records as the kernel stores them: an oops that it survived, and one that made it panic.
const (
	survived = "Oops#1 Part1\n<4>[  100.000001] Oops: 0002 [#1] PREEMPT SMP NOPTI\n"
	newer    = "Panic#2 Part1\n<4>[  512.300400] RIP: 0010:nfs_commit+0x12/0x80\n" +
		"<4>[  512.301000] Call Trace:\n<0>[  512.302000] Kernel panic - not syncing: Fatal exception\n"
	older = "Panic#2 Part2\n<30>[  500.000000] systemd[1]: started\n" +
		"<1>[  512.300001] BUG: kernel NULL pointer dereference, address: 0000000000000020\n" +
		"<4>[  512.300300] Oops: 0002 [#2] PREEMPT SMP NOPTI\n"
	// Its log of kdump, which started right after the oops.
	whole = "[    0.000000] Linux version 6.12.0\n[  512.300001] BUG: kernel NULL pointer dereference, address: 0000000000000020\n"
)

// node is a host's file system.
type node struct {
	t    *testing.T
	root string
	seen logs.Position
	// handed over by the last run
	lines  []logs.Line
	losses []logs.Reason
	status []string
}

func newNode(t *testing.T) *node {
	n := &node{t: t, root: t.TempDir()}
	for _, dir := range []string{"sys/fs", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(n.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// write writes a file with a modification time relative to the boot.
func (n *node) write(path, text string, at time.Duration) {
	n.t.Helper()
	path = filepath.Join(n.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	when := booted().Add(at)
	if err := os.Chtimes(path, when, when); err != nil {
		n.t.Fatal(err)
	}
}

func booted() time.Time { return time.Now().Add(-hostfs.BootTime()) }

// look runs a reader until it has looked once, and returns the texts of the lines.
func (n *node) look() []string {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	defer cancel()
	n.lines, n.losses, n.status = nil, nil, nil
	r := New(Config{Root: n.root, Position: n.seen, Lookback: 24 * time.Hour, Status: func(err error) {
		n.status = append(n.status, strings.ReplaceAll(fmt.Sprint(err), n.root, ""))
		cancel()
	}})
	if r.Position() != n.seen {
		n.t.Errorf("position %q before the first look, want %q", r.Position(), n.seen)
	}
	if err := r.Run(ctx, n.take); err != nil {
		n.t.Fatal(err)
	}
	n.seen = r.Position()
	var texts []string
	for _, l := range n.lines {
		texts = append(texts, string(l.Text))
	}
	return texts
}

func (n *node) take(item logs.Item) error {
	if item.Loss != nil {
		n.losses = append(n.losses, item.Loss.Reason)
		return nil
	}
	n.lines = append(n.lines, *item.Line)
	return nil
}
