package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// hungState returns a state folder of node n7 whose disk does not answer.
func hungState(t *testing.T) (dir string, disk *disklab.HungFiles) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, events.StateFile), []byte(`{"node":"n7"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(dir, agent.JournalDir), journal.Options{Patience: testenv.Within(time.Minute)}) // a busy disk syncs late
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := j.Add(journal.Entry{Now: time.Now(), Boot: "b1"}); err != nil || j.Flush() != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	return dir, disklab.HangFiles(t, dir, filepath.Join(dir, agent.JournalDir))
}

func TestStatusWhileTheDiskHangs(t *testing.T) {
	dir, _ := hungState(t)
	for _, name := range []string{"status", "top"} {
		out := make(chan string, 1)
		go func() {
			_, text := command(t, name, "--state-dir", dir, "--endpoint", "127.0.0.1:1")
			out <- text
		}()
		select {
		case text := <-out:
			if !strings.Contains(text, "state folder: "+dir+" does not answer") {
				t.Errorf("%s: %s", name, text)
			}
		case <-time.After(testenv.Within(20 * time.Second)):
			t.Errorf("%s waits for the disk", name)
		}
	}
}

func TestWhyWhileTheDiskHangs(t *testing.T) {
	testenv.OnlyInTestAll(t)
	dir, _ := hungState(t)
	none := filepath.Join(t.TempDir(), "none")
	refuses := write(t, t.TempDir(), "kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]}`)
	for kubeconfig, api := range map[string]string{none: "", refuses: "connection refused"} {
		t.Setenv("KUBECONFIG", kubeconfig)
		out := make(chan error, 1)
		go func() {
			root := newRoot()
			root.SetArgs([]string{"why", "node", "--state-dir", dir})
			root.SetErr(io.Discard)
			out <- root.ExecuteContext(t.Context())
		}()
		select {
		case err := <-out:
			if err == nil || !strings.Contains(err.Error(), dir+" does not answer: does its disk hang?") || !strings.Contains(err.Error(), api) {
				t.Error(err)
			}
		case <-time.After(testenv.Within(time.Minute)):
			t.Errorf("it waits for the disk: %q", api)
		}
	}
}

func TestBundleWhileTheDiskHangs(t *testing.T) {
	testenv.OnlyInTestAll(t)
	dir, _ := hungState(t)
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	out := make(chan string, 1)
	go func() {
		_, text := command(t, "bundle", "--state-dir", dir, "--endpoint", "127.0.0.1:1", "--features=false", "-o", archive)
		out <- text
	}()
	select {
	case text := <-out:
		lacks := bundleFiles(t, archive)[manifestName]
		for _, name := range []string{"rules.txt", "journal.jsonl", "diagnoses.txt", "mutes.yaml"} {
			if !regexp.MustCompile(name + `.*does not answer`).MatchString(lacks) {
				t.Errorf("nothing of %s in %s; %s", name, lacks, text)
			}
		}
	case <-time.After(testenv.Within(time.Minute)):
		t.Error("it waits for the disk")
	}
}

// While top waits for the disk, a key or the end of its context ends it; when the disk answers, top
// continues.
func TestTopWhileTheDiskHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // an agent that does not answer either: 5 s to end it in
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for by, endpoint := range map[string]string{"a key": silent.Addr().String(), "its context": silent.Addr().String(), "": "127.0.0.1:1"} {
		dir, disk := hungState(t)
		terminal, person := openTerminal(t)
		seen := &screenshot{}
		go seen.follow(person)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		top := &top{access: agentAccess{stateDir: dir, endpoint: endpoint}, interval: minInterval, in: terminal, out: terminal, err: terminal}
		ended := make(chan error, 1)
		go func() { ended <- top.run(ctx) }()
		disk.Wait()
		switch by {
		case "a key":
			if _, err := person.WriteString("q"); err != nil {
				t.Fatal(err)
			}
		case "its context":
			cancel()
		default:
			testenv.UntilShown(t, "what does not answer", 20*time.Second, func() (bool, string) {
				return strings.Contains(seen.String(), "does not answer"), seen.String()
			})
			disk.Release()
			testenv.UntilShown(t, "what answers", 20*time.Second, func() (bool, string) {
				all := strings.Split(seen.String(), "\x1b[H")
				return !strings.Contains(all[len(all)-1], "does not answer") && len(all) > 2, seen.String()
			})
			cancel()
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(testenv.Within(20 * time.Second)):
			t.Errorf("%s does not end it", by)
		}
		if by != "" && strings.Contains(seen.String(), "q quits") {
			t.Errorf("%s ends it after the read", by)
		}
	}
}
