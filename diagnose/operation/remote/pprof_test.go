package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	httppprof "net/http/pprof"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// profiles serves the profiles of this process.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", httppprof.Index)
	mux.HandleFunc("/debug/pprof/profile", httppprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", httppprof.Trace)
	return mux
}

// at returns the parameters for a test server.
func at(t *testing.T, s *httptest.Server, more ...string) map[string]string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p := map[string]string{"address": host, "port": port}
	for i := 0; i < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
	return p
}

func TestPprof(t *testing.T) {
	s := httptest.NewServer(profiles())
	defer s.Close()
	for kind, artifact := range map[string]string{
		"heap": "heap.pb.gz", "allocs": "allocs.pb.gz", "block": "block.pb.gz", "mutex": "mutex.pb.gz", "threadcreate": "threadcreate.pb.gz", "cpu": "cpu.pb.gz", "trace": "trace.out",
	} {
		out, kept, err := operationtest.Perform(t, Pprof(operation.Host{}), at(t, s, "profile", kind, "seconds", "1s"))
		content := kept.Files[artifact]
		if err != nil || out.Truncated || out.Results["artifact"] != artifact || out.Results["profile"] != kind || out.Results["bytes"] != strconv.Itoa(len(content)) {
			t.Fatalf("%s: %+v, %v", kind, out, err)
		}
		if strings.HasSuffix(artifact, ".gz") {
			z, err := gzip.NewReader(strings.NewReader(content))
			if err == nil {
				_, err = io.Copy(io.Discard, z)
			}
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
	var blocked sync.WaitGroup
	release := make(chan struct{})
	for range 40 {
		blocked.Go(func() { <-release })
	}
	testenv.Until(t, "the goroutines wait", 10*time.Second, func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("[chan receive")) >= 40
	})
	out, kept, err := operationtest.Perform(t, Pprof(operation.Host{}), at(t, s))
	close(release)
	blocked.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(out.Results["goroutines"]); err != nil || n < 42 || !strings.Contains(out.Results["states"], "chan receive 4") || out.Results["longestWait"] != "0m" {
		t.Errorf("%q", out.Results)
	}
	if text := kept.Files["goroutine.txt"]; !strings.Contains(text, "TestPprof") || strings.Count(text, "[chan receive") < 40 {
		t.Errorf("%.500s", text)
	}
}

func TestPprofOfASocket(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "run/containerd/debug.sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(profiles())
	_ = s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()
	h := operation.Host{FS: hostfs.New(root)}
	if out, _, err := operationtest.Perform(t, Pprof(h), map[string]string{"socket": "/run/containerd/debug.sock"}); err != nil || out.Results["goroutines"] == "0" {
		t.Errorf("%+v, %v", out, err)
	}
	for socket, want := range map[string]string{"/run/none": "no such file", "debug.sock": "want an absolute path", "/run/../../run/none": "no such file"} {
		if _, _, err := operationtest.Perform(t, Pprof(h), map[string]string{"socket": socket}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", socket, err)
		}
	}
}

func TestPprofRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		handle http.HandlerFunc
		want   string
	}{
		{"other", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>\x1b") }, `the answer is not the requested profile: it begins with "<html>\x1b"`},
		{"empty", func(http.ResponseWriter, *http.Request) {}, `the answer is not the requested profile: it begins with ""`},
		{"busy", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "cpu profiling already in use", http.StatusInternalServerError)
		}, "status 500 Internal Server Error: cpu profiling already in use"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}, "redirects are not followed"},
		{"encoded", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "gzip") }, "which was not requested"},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "goroutine 1 [running]:\n")
		}, "after 23 bytes: unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(tt.handle)
			defer s.Close()
			if _, _, err := operationtest.Perform(t, Pprof(operation.Host{}), at(t, s)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
	for _, p := range []map[string]string{{}, {"address": "127.0.0.1"}, {"port": "80"}} {
		if _, _, err := operationtest.Perform(t, Pprof(operation.Host{}), p); err == nil || err.Error() != "parameters address and port, or socket, are required" {
			t.Error(err)
		}
	}
	if _, _, err := operationtest.Perform(t, Pprof(operation.Host{}), map[string]string{"address": "169.254.169.254", "port": "80"}); err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Error(err)
	}
}

// TestPprofIsBounded: in bytes, by the disk budget, and in time.
func TestPprofIsBounded(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "goroutine 1 [running]:\n")
		b := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	out, kept, err := operationtest.Perform(t, Pprof(operation.Host{}), at(t, endless))
	if err != nil || !out.Truncated || len(kept.Files["goroutine.txt"]) != maxProfile || out.Results["goroutines"] != "1" {
		t.Errorf("%+v, %v", out, err)
	}
	values, _ := new(Pprof(operation.Host{})).Fill(at(t, endless))
	call, kept, _ := operationtest.NewCall(values)
	kept.Err = operation.ErrArtifactBudget
	if _, err := pprof(t.Context(), operation.Host{}, call); !errors.Is(err, operation.ErrArtifactBudget) {
		t.Error(err)
	}
	release := make(chan struct{})
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "goroutine 1 [running]:\n")
		w.(http.Flusher).Flush()
		<-release
	}))
	defer hang.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	values, _ = new(Pprof(operation.Host{})).Fill(at(t, hang))
	call, _, _ = operationtest.NewCall(values)
	if _, err := pprof(ctx, operation.Host{}, call); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestStackSummary(t *testing.T) {
	text := "goroutine 1 [chan receive, 12 minutes]:\nmain.main()\n\nmain.go:1\n\ngoroutine 18 gp=0xc000 m=nil [IO wait, 3 minutes, locked to thread]:\n" +
		"goroutine 7 [chan receive]:\ngoroutine x [running]:\ngoroutine 9 running\n" + strings.Repeat("y", 5000) + "\ngoroutine 10 [sync.\x1bMutex.Lock, 4000 minutes]:\nlast"
	for _, size := range []int{1, 3, 50, 10_000} {
		s := &stackSummary{states: map[string]int{}}
		for i := 0; i < len(text); i += size {
			if n, err := s.Write([]byte(text[i:min(len(text), i+size)])); err != nil || n == 0 {
				t.Fatal(n, err)
			}
		}
		got := map[string]string{}
		s.addTo(got)
		if got["goroutines"] != "4" || got["longestWait"] != "4000m" || got["states"] != `chan receive 2; IO wait 1; sync.\x1bMutex.Lock 1` {
			t.Errorf("%q", got)
		}
	}
	s := &stackSummary{states: map[string]int{}}
	for i := range 100 {
		fmt.Fprintf(s, "goroutine %d [state%02d]:\n", i, i)
	}
	got := map[string]string{}
	s.addTo(got)
	if got["goroutines"] != "100" || len(s.states) != maxStates+1 || !strings.HasPrefix(got["states"], "other 68; state00 1; ") || !strings.HasSuffix(got["states"], "; and 25 others") {
		t.Errorf("%q", got)
	}
}

func FuzzStackSummary(f *testing.F) {
	f.Add([]byte("goroutine 1 [running, 3 minutes]:\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &stackSummary{states: map[string]int{}}
		_, _ = s.Write(b)
		got := map[string]string{}
		s.addTo(got)
		if len(s.line) > maxStackLine || len(s.states) > maxStates+1 || strings.ContainsAny(got["states"], "\n\x1b\x00") {
			t.Errorf("%q", got)
		}
	})
}
