package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestDaemon runs the daemon with a real intake and requires 101 % of free space, which no
// filesystem has.
func TestDaemon(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "kernosis-example-") //nolint:usetesting // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	in, err := ingest.New(ingest.Config{Sources: []ingest.Source{{
		Name: "example-daemon", UIDs: []uint32{uint32(os.Geteuid())}, Conditions: []string{"ScratchFull"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "report.sock")
	server, err := ingest.Listen(socket, in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reported := make(chan event.CheckData, 100)
	ended := make(chan error, 3)
	go func() {
		ended <- in.Run(ctx, func(ev *event.Event) {
			if ev.Check != nil { // else it is of kind source
				reported <- *ev.Check
			}
		})
	}()
	go func() { ended <- server.Serve(ctx) }()
	if err := os.WriteFile(filepath.Join(dir, "tell-kernosis"), []byte("look here"), 0o600); err != nil {
		t.Fatal(err)
	}
	daemonContext, stop := context.WithCancel(ctx)
	d := daemon{path: dir, minFree: 101, every: 10 * time.Millisecond}
	daemonEnded := make(chan error, 1)
	go func() { daemonEnded <- d.run(daemonContext, socket, "example-daemon") }()
	want := map[string]string{"example-daemon/ScratchFull": "BelowMinimum", "example-daemon/warn": "NoteFound"}
	for deadline := time.After(testenv.Within(20 * time.Second)); len(want) > 0; {
		select {
		case e := <-reported:
			if want[e.Check] == e.Reason {
				delete(want, e.Check)
			}
		case <-deadline:
			t.Fatalf("not reported: %v", want)
		}
	}
	stop()
	if err := <-daemonEnded; err != nil {
		t.Error(err)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
