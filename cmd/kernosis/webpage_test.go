package main

import (
	"bufio"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A real kill is announced on the stream, and shown on the page.
func TestTheAgentsPage(t *testing.T) {
	needKernel(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	p := newAgent(t, "--listen", "127.0.0.1:0")
	p.Start()
	p.WaitSources(0)
	url := p.Log.URL(t)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	oom := &inject.OOM{StateDir: t.TempDir()}
	if err := oom.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer oom.Close()
	if _, err := oom.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	shown := func() bool {
		status, body := get(t, url+"/")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		// In the list of problems and in the timeline.
		return strings.Count(body, filepath.Base(oom.Cgroup())) >= 2 && strings.Contains(body, `<a href="problems/OOMKilling">`)
	}
	for lines := bufio.NewScanner(stream.Body); !shown(); {
		for lines.Scan() && lines.Text() != "event: changed" { //nolint:revive // it waits for one
		}
		if ctx.Err() != nil || lines.Err() != nil {
			t.Fatalf("the kill is not shown: %v, %v", ctx.Err(), lines.Err())
		}
	}
	p.Stop()
	if _, err := bufio.NewReader(stream.Body).ReadString('\x00'); err == nil {
		t.Error("the stream goes on")
	}
}
