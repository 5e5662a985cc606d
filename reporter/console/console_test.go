package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// at returns a time in the zone that lines are written in.
func at(ms int) time.Time {
	return time.Date(2026, 3, 4, 10, 41, 2, 0, time.Local).Add(time.Duration(ms) * time.Millisecond)
}

func kill(count uint64) journal.Entry {
	return journal.Entry{
		Seq: count, Now: at(120),
		Event: &event.Event{Kind: event.OOMKill, Time: at(118), CPU: 1},
		Transitions: []problem.Transition{{Problem: &problem.Problem{
			Rule: "oom-kill", Reason: "OOMKilling", Message: "stress[4122] killed", Severity: problem.Warning,
			State: problem.Firing, Count: count, FirstSeen: at(118), LastSeen: at(118),
		}}},
	}
}

func TestText(t *testing.T) {
	resolved := kill(3)
	resolved.Event, resolved.Now = nil, at(5118)
	resolved.Transitions[0].Problem.State = problem.Resolved
	hidden := kill(1)
	hidden.Event.CPU = event.NoCPU
	hidden.Transitions[0].Problem.SuppressedBy = "disk-stalled"
	tests := []struct {
		name  string
		entry journal.Entry
		want  string
	}{
		{"first", kill(1), "10:41:02.118 warning  OOMKilling           stress[4122] killed [oom-kill] (2ms)\n"},
		{"again", kill(23), "10:41:02.118 warning  OOMKilling           stress[4122] killed (x23) [oom-kill] (2ms)\n"},
		{"over", resolved, "10:41:07.118 resolved OOMKilling           stress[4122] killed — after 5s (x3) [oom-kill]\n"},
		{"no kernel record, hidden by its cause", hidden, "10:41:02.118 warning  OOMKilling           stress[4122] killed [oom-kill, caused by disk-stalled]\n"},
		{
			"condition", journal.Entry{Now: at(0), Transitions: []problem.Transition{{Condition: &problem.Condition{
				Type: "KernelDeadlock", Status: problem.True, Reason: "TaskHung", Message: "a task is stuck",
			}}}}, "10:41:02.000 node     KernelDeadlock=True TaskHung: a task is stuck\n",
		},
		{"nothing followed", journal.Entry{Now: at(0), Event: &event.Event{Kind: event.Source}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := flushed(NewText(&b), tt.entry); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("line differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Muted problems are not printed; the mute itself is.
func TestMuted(t *testing.T) {
	e := kill(1)
	e.Transitions[0].Problem.MutedUntil = e.Now.Add(time.Hour)
	m := problem.Mute{Rule: "oom-kill", Where: map[string]string{"cgroup.path": "/a\x1b"}, Until: e.Now.Add(time.Hour), Reason: "known"}
	var b bytes.Buffer
	for _, e := range []journal.Entry{e, {Now: e.Now, Transitions: []problem.Transition{{Mute: &problem.MuteChange{Mute: m}}, {Mute: &problem.MuteChange{Mute: m, Over: true}}}}} {
		if err := flushed(NewText(&b), e); err != nil {
			t.Fatal(err)
		}
	}
	at := e.Now.Local().Format("15:04:05.000")
	want := at + ` node     oom-kill cgroup.path="/a\x1b" muted until ` + m.Until.Local().Format(time.DateTime) + ": known\n" +
		at + ` node     oom-kill cgroup.path="/a\x1b" no longer muted: known` + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

func TestJSONIsOneEntryALine(t *testing.T) {
	var b bytes.Buffer
	w := NewJSON(&b)
	want := []journal.Entry{kill(1), kill(2), kill(3)}
	for i, e := range want {
		if i == 2 {
			// The journal has encoded the entry already.
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			e = journal.Entry{Line: append(line, '\n')}
		}
		if err := w.Write(e); err != nil || b.Len() > 0 {
			t.Fatalf("%q, %v", b.String(), err)
		}
	}
	if _, err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d", len(lines), len(want))
	}
	for i, line := range lines {
		var got journal.Entry
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("entry differs (-want +got):\n%s", diff)
		}
	}
}

// flushed writes one entry and flushes it.
func flushed(w Writer, e journal.Entry) error {
	err := w.Write(e)
	_, lost := w.Flush()
	return errors.Join(err, lost)
}

type broken struct{}

var errBroken = errors.New("pipe is broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteErrorsAreReturned(t *testing.T) {
	lined := kill(1)
	lined.Line = []byte("{}\n")
	for name, w := range map[string]Writer{"text": NewText(broken{}), "json": NewJSON(broken{})} {
		for _, e := range []journal.Entry{kill(1), lined} {
			if err := flushed(w, e); !errors.Is(err, errBroken) {
				t.Errorf("%s: %v, want %v", name, err, errBroken)
			}
			if _, err := w.Flush(); err != nil {
				t.Errorf("%s: lines are written again: %v", name, err)
			}
		}
	}
}

// short takes only the first bytes of each write.
type short int

func (s short) Write(b []byte) (int, error) { return min(int(s), len(b)), errBroken }

// Lines that were written in part are lost, complete ones are not.
func TestWriteErrorsCountLines(t *testing.T) {
	e := kill(1)
	e.Line = []byte("12345\n")
	for taken, want := range map[short]int{0: 3, 5: 3, 6: 2, 17: 1} {
		w := NewJSON(taken)
		err := errors.Join(w.Write(e), w.Write(e), w.Write(e))
		if err != nil {
			t.Fatal(err)
		}
		if lost, err := w.Flush(); !errors.Is(err, errBroken) || lost != want {
			t.Errorf("%d bytes taken: %d lines, %v, want %d lines", taken, lost, err, want)
		}
	}
}
