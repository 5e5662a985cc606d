package detector_test

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

// harmless fails the test if an error contains terminal control characters.
func harmless(t *testing.T, err error) {
	t.Helper()
	if s := err.Error(); strings.ContainsAny(s, "\x1b\x7f\r\u202e") {
		t.Errorf("error %q", s)
	}
}

// FuzzLoad: no rule file makes the loader panic, and one that loads runs.
func FuzzLoad(f *testing.F) {
	entries, err := fs.ReadDir(detector.Shipped(), ".")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		data, err := fs.ReadFile(detector.Shipped(), e.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("apiVersion: rules.kernosis.io/v1\nconditions: {Sick: {healthyReason: Well, healthyMessage: m}, Ill: {healthyReason: Well, healthyMessage: m}}\nrules:" + nfsRules + benchLogRules))
	f.Add([]byte("apiVersion: rules.kernosis.io/v1\nrules:\n- {name: a, events: [log], pattern: '(?i)BUG(.*\\n)*(?P<a>é|x{2,5})?$', lines: 100, logs: [kmsg], clearPattern: '(?P<a>)\\Q(', clearWhen: match.a != log.text, groupBy: [match.a, log.origin], reason: R, message: \"${match.a}\"}\n"))
	f.Add([]byte("apiVersion: rules.kernosis.io/v1\nrules:\n- {name: a, events: [log], when: \"log.text \\x1b[31m\", pattern: \"a(\\x1b[31m\\x7f\", reason: R, message: m, \"\\x1bk\": 1}\n"))
	archives, _ := filepath.Glob("testdata/errors/*.txtar")
	for _, path := range archives {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := detector.Load(fstest.MapFS{"f.yaml": &fstest.MapFile{Data: data}})
		if err != nil {
			harmless(t, err)
			return
		}
		e := detector.NewEngine(set)
		for i, k := range event.Kinds() {
			e.Observe(&event.Event{Kind: k, BootTime: event.Duration(i + 1), HungTask: &event.HungTaskData{}, Task: &event.Task{}}, at(time.Duration(i)))
		}
		for i, text := range []string{"nfs: server a not responding", "nfs: server a OK", "BUG\nxxx\n", "\n\n\xff", ""} {
			e.Observe(logged(time.Duration(i), text), at(time.Duration(100+i)))
		}
		e.Tick(at(time.Hour))
		if _, err := e.Snapshot(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRestore: no snapshot makes the engine panic or hang.
func FuzzRestore(f *testing.F) {
	set := ruleSet(f, propertyRules)
	e := detector.NewEngine(set)
	e.Observe(oom(0, "/a"), at(0))
	e.Observe(&event.Event{Kind: event.HungTask, Task: &event.Task{PID: 1}, HungTask: &event.HungTaskData{}}, at(0))
	data, err := e.Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1,"problems":[{"rule":"sick","fault":"sick","condition":"Sick","groupBy":["cgroup.path"],"state":"pending","window":[{"at":1},{"at":-1}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := detector.NewEngine(set)
		if e.Restore(data, at(0)) != nil {
			return
		}
		for i := range 20 {
			e.Observe(oom(time.Duration(i), "/a"), at(time.Duration(i)*time.Minute))
			if d, ok := e.NextDeadline(); ok {
				e.Tick(d)
			}
		}
		again, err := e.Snapshot()
		if err != nil {
			// Times beyond the year 9999 have no JSON form.
			t.Skip(err)
		}
		if !json.Valid(again) {
			t.Error("snapshot is no JSON")
		}
	})
}

// FuzzObserve: no event makes the shipped rules panic.
func FuzzObserve(f *testing.F) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		f.Fatal(err)
	}
	data, err := json.Marshal(oom(0, "/a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"kind":"sockfail","sockFail":{"target":"t","verdict":"local-drop","evidence":["a"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ev := new(event.Event)
		if json.Unmarshal(data, ev) != nil {
			return
		}
		e := detector.NewEngine(set)
		e.Observe(ev, at(0))
		for _, p := range e.Problems() {
			if len(p.Message) > detector.MaxMessage {
				t.Errorf("message of %d bytes", len(p.Message))
			}
		}
	})
}

// FuzzLogged: no log line makes log rules panic, output unsafe characters, or
// match at its end what they don't match alone.
func FuzzLogged(f *testing.F) {
	set := ruleSet(f, nfsRules+benchLogRules+`
- {name: text, events: [log], pattern: '(?s)(?P<all>.*)', groupBy: [match.all, log.origin], reason: R, message: "${log.text} ${match.all}", maxGroups: 3}
`)
	f.Add("kmsg", "kernel", "BUG\nnfs: server a not responding\n")
	f.Add("journald", "\x1b[2J", "nfs: server \xff\u202e OK\n\n")
	f.Add("", "", strings.Repeat("é", 5000))
	f.Add("", "", strings.Repeat("\xa9", 500)) // escapes make it four times as long
	f.Fuzz(func(t *testing.T, log, origin, text string) {
		e := detector.NewEngine(set)
		ev := logged(0, text)
		ev.Log.Log, ev.Log.Origin = log, origin
		e.Observe(ev, at(0))
		for _, p := range e.Problems() {
			if len(p.Message) > detector.MaxMessage || strings.ContainsAny(p.Message+p.Group, "\x1b\n\u202e") {
				t.Errorf("message %q of group %q", p.Message, p.Group)
			}
		}
		last := event.LogText(text)
		last = last[strings.LastIndexByte(last, '\n')+1:]
		alone := detector.NewEngine(set)
		alone.Observe(logged(0, last), at(0))
		for _, name := range []string{"nfs/pattern", "nfs/clearPattern", "text/pattern"} {
			if have, want := e.Stats().Matches[name], alone.Stats().Matches[name]; have != want {
				t.Errorf("%s: %d matches, the last line alone has %d", name, have, want)
			}
		}
	})
}
