package agent

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	kubestore "github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
)

// earlierState returns a copy of an earlier version's state folder, changed as if that version had
// ended some seconds ago, in this boot.
func earlierState(t *testing.T) string {
	t.Helper()
	const ended = "2026-11-25T13:55:30Z" // when it ended, and its boot ID
	dir, boot := t.TempDir(), "a95acb8f-558a-4454-a9b3-4517b72a04ca"
	if err := os.CopyFS(dir, os.DirFS("testdata/earlier/state")); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, ended)
	if err != nil {
		t.Fatal(err)
	}
	since, booted := time.Since(at), time.Now().Add(-hostfs.BootTime())
	times := regexp.MustCompile(`"(2026-11-25T13:5[0-9:.]+Z)"(,"bootTime":"[0-9hms.]+")?`)
	changeFiles(t, dir, func(_ string, text []byte) []byte {
		text = times.ReplaceAllFunc(text, func(m []byte) []byte {
			parts := times.FindSubmatch(m)
			one, err := time.Parse(time.RFC3339Nano, string(parts[1]))
			if err != nil {
				t.Fatal(err)
			}
			one = one.Add(since).UTC()
			out := strconv.Quote(one.Format(time.RFC3339Nano))
			if len(parts[2]) > 0 {
				out += fmt.Sprintf(`,"bootTime":"%s"`, one.Sub(booted))
			}
			return []byte(out)
		})
		return bytes.ReplaceAll(text, []byte(boot), []byte(hostfs.BootID()))
	})
	return dir
}

// changeFiles changes all state files except checkpoints, which have checksums.
func changeFiles(t *testing.T, dir string, change func(name string, text []byte) []byte) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".checkpoint") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, change(d.Name(), text), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// withMore adds a field to each line's object, as a newer version of the same format may.
func withMore(_ string, text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i, l := range lines {
		if bytes.HasPrefix(l, []byte("{")) {
			lines[i] = append([]byte(`{"later":{"is":[1]},`), l[1:]...)
		}
	}
	return bytes.Join(lines, nil)
}

// All state of an earlier version is read, and nothing is set aside but the engine's state, which is
// rebuilt from the journal. Additions of a newer version are ignored.
func TestAnEarlierVersionsState(t *testing.T) {
	for name, change := range map[string]func(name string, text []byte) []byte{
		"as it is": nil,
		"with more": func(name string, text []byte) []byte {
			text = withMore(name, text)
			if strings.HasPrefix(name, "journal-") {
				text = append(text, `{"seq":17,"now":"2026-11-25T13:55:29Z","event":{"kind":"later","time":"2026-11-25T13:55:29Z","bootTime":"1s","cpu":0,"later":{}}}`+"\n"...)
			}
			return text
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := earlierState(t)
			if change != nil {
				changeFiles(t, dir, change)
			}
			set, err := LoadRules("testdata/earlier/rules")
			if err != nil {
				t.Fatal(err)
			}
			a, log := restoredWith(t, dir, set)
			a.tick()
			for _, rule := range []string{"oom-kill", "killed-here", "app-broken"} {
				if states := statesOf(a.engine.Problems(), rule); len(states) != 1 || states[0] != problem.Firing {
					t.Errorf("problems of %s are %v", rule, states)
				}
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "format 1, want 2") {
				t.Errorf("log:\n%s", log)
			}

			log.Reset()
			to := slog.New(slog.NewTextHandler(log, nil))
			server := &rest.Config{Host: "http://127.0.0.1:1"}
			client, err := kubernetes.NewForConfig(server)
			if err != nil {
				t.Fatal(err)
			}
			const node = "testskew-whg478"
			if _, err := conditions.New(conditions.Config{Client: client, Node: node, StateFile: filepath.Join(dir, "conditions.json"), Log: to}); err != nil {
				t.Error(err)
			}
			sink, err := events.New(events.Config{Client: client, Node: node, Pods: noPods{}, Dir: dir, JournalDir: filepath.Join(dir, JournalDir), JournalSeq: a.journal.Seq(), Log: to})
			if err != nil {
				t.Fatal(err)
			}
			if n := sink.Stats().Series; n != 3 {
				t.Errorf("%d series of Events, want 3", n)
			}
			known, err := kubestore.New(kubestore.Config{REST: server, Node: node, Dir: filepath.Join(dir, "diagnose"), Log: to})
			if err != nil {
				t.Fatal(err)
			}
			if o := known.Objects(); len(o.Operations) == 0 || len(o.OperationSets) != 3 || len(o.Triggers) != 3 {
				t.Errorf("%d Operations, %d OperationSets, %d Triggers", len(o.Operations), len(o.OperationSets), len(o.Triggers))
			}
			if strings.Contains(log.String(), "level=WARN") || strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("log:\n%s", log)
			}
			views, err := ReadDiagnoses(RunsDir(dir))
			if err != nil || len(views) != 3 {
				t.Errorf("%d diagnoses, %v", len(views), err)
			}
			for _, v := range views {
				if v.Err != nil {
					t.Error(v.Err)
				}
			}
			aside, err := filepath.Glob(filepath.Join(dir, "*.unread"))
			if err != nil || len(aside) != 1 || filepath.Base(aside[0]) != "engine.json.unread" {
				t.Errorf("set aside: %v, %v", aside, err)
			}
		})
	}
}

// noPods knows no pods.
type noPods struct{}

func (noPods) Pod(string) (pods.Pod, bool) { return pods.Pod{}, false }

func (noPods) Known(time.Time) bool { return true }

func statesOf(all []problem.Problem, rule string) (states []problem.State) {
	for i := range all {
		if all[i].Rule == rule {
			states = append(states, all[i].State)
		}
	}
	return states
}
