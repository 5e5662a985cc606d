package event_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
)

func TestFacts(t *testing.T) {
	second := event.Duration(time.Second)
	task := &event.Task{PID: 811, TGID: 811, Comm: "postgres"}
	for name, c := range map[string]struct {
		ev   *event.Event
		want event.Facts
	}{
		"none": {},
		"probe": {
			&event.Event{Kind: event.Probe, Container: &event.Container{ID: strings.Repeat("8a", 32)}, Probe: &event.ProbeData{
				Probe: "liveness", Container: "app", Handler: "http", Endpoint: "10.0.0.7:8080/healthz", Timeout: second, Period: 10 * second, Failures: 2, Threshold: 3,
				ProbeOutcome: event.ProbeOutcome{Verdict: event.VerdictSilent, Cause: "no byte back in 1s", Throttled: 82, ThrottledIn: 10 * second,
					Said: "context deadline exceeded", Evidence: []string{"request acked"}, Excluded: []string{"network (RTT 0.2ms)"}},
			}},
			event.Facts{
				Kind: event.Probe, Verdict: "connected-silent", Cause: "no byte back in 1s", Because: "container CPU-throttled 82 % of the last 10s",
				State: "liveness 2 of 3 towards restart", Container: "app",
				Evidence: []string{"request acked", "http 10.0.0.7:8080/healthz, time-out 1s, every 10s", `message: "context deadline exceeded"`},
				Excluded: []string{"network (RTT 0.2ms)"},
			},
		},
		"probe that is throttled a little": {
			&event.Event{Kind: event.Probe, Probe: &event.ProbeData{Probe: "readiness", Failures: 4, Threshold: 3, ProbeOutcome: event.ProbeOutcome{Verdict: event.VerdictSilent, Throttled: 3, ThrottledIn: 10 * second}}},
			event.Facts{Kind: event.Probe, Verdict: "connected-silent", State: "readiness failed 4 times in a row, 3 make it not ready"},
		},
		"oom": {
			&event.Event{Kind: event.OOMKill, Task: task, Container: &event.Container{ID: strings.Repeat("8a", 32)}, Cgroup: &event.Cgroup{Path: "/kubepods/a/b"}, OOMKill: &event.OOMKillData{
				Scope: "memcg", LimitCgroup: &event.Cgroup{Path: "/kubepods/a"}, Limit: 64 << 20, Usage: 64 << 20, AnonRSS: 31 << 20, OOMScoreAdj: 968, Approximate: true, Trigger: &event.Task{PID: 7, Comm: "sh"},
			}},
			event.Facts{Kind: event.OOMKill, Verdict: "memcg", Container: "8a8a8a8a8a8a", Evidence: []string{
				"64 MiB used of the 64 MiB limit of /kubepods/a",
				"postgres[811] killed: anonymous about 31 MiB, file 0 B, shared 0 B, swap 0 B, page tables 0 B", "triggered by sh[7]", "oom_score_adj 968",
			}, Excluded: []string{"node out of memory (a cgroup's limit was hit)"}},
		},
		"hung task": {
			&event.Event{Kind: event.HungTask, Task: task, HungTask: &event.HungTaskData{
				BlockedFor: 131 * second, Wait: "lock", Lock: "mutex", Holder: &event.Task{PID: 9, Comm: "backup"}, HolderHint: true, Stack: []string{"a+0x1", "b+0x2", "c+0x3", "d+0x4", "e+0x5"},
			}},
			event.Facts{Kind: event.HungTask, Verdict: "lock", Evidence: []string{
				"not run for at least 2m11s, waits for a mutex", "lock held possibly by backup[9]", "stack: a+0x1 ← b+0x2 ← c+0x3 ← d+0x4",
			}},
		},
		"disk": {
			&event.Event{Kind: event.DiskIO, Device: &event.Device{Name: "dm-0", Mounts: []event.Mount{{Path: "/data", FSType: "ext4"}}}, DiskIO: &event.DiskIOData{Op: "write", Sector: 8, Bytes: 4096, Error: "EIO", Status: "MEDIUM", Lower: "sdb"}},
			event.Facts{Kind: event.DiskIO, Verdict: "EIO", Evidence: []string{"write of 4 KiB at sector 8: EIO MEDIUM", "the error comes from sdb below it", "dm-0 is mounted at /data (ext4)"}},
		},
		"connection": {
			&event.Event{Kind: event.SockFail, SockFail: &event.SockFailData{Verdict: event.VerdictRefused, Errno: "ECONNREFUSED", Duration: second / 2000, QueueMax: 128, QueueLen: 129, Excluded: []string{"route"}}},
			event.Facts{Kind: event.SockFail, Verdict: "refused", Evidence: []string{"accept queue 129/128", "ECONNREFUSED after 500µs"}, Excluded: []string{"route"}},
		},
		"line of a log": {
			&event.Event{Kind: event.Log, Log: &event.LogData{Log: "kmsg", Text: "first\n\x1b[2Jsecond"}},
			event.Facts{Kind: event.Log, Evidence: []string{`kmsg: \x1b[2Jsecond`}},
		},
	} {
		if diff := cmp.Diff(c.want, c.ev.Facts()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Every kind that can cause a problem has facts.
func TestEachPayloadHasFacts(t *testing.T) {
	for _, ev := range []*event.Event{
		{Kind: event.DiskStalled, DiskStall: &event.DiskStallData{}}, {Kind: event.FSError, FSError: &event.FSErrorData{}},
		{Kind: event.HWError, HWError: &event.HWErrorData{}},
		{Kind: event.MountReadOnly, Mount: &event.MountData{}}, {Kind: event.Check, Check: &event.CheckData{}}, {Kind: event.Lost, Lost: &event.LostData{}},
	} {
		if f := ev.Facts(); len(f.Evidence) == 0 {
			t.Errorf("%s: nothing", ev.Kind)
		}
	}
}

// Facts survive the way through annotations, and stay within the bound however many there are.
func TestAnnotations(t *testing.T) {
	whole := event.Facts{
		Kind: event.Probe, Verdict: "refused", Cause: "nothing listens <on> :8080", Because: "b", State: "s", Container: "app", Doc: "problems/ProbeTargetRefused",
		Evidence: []string{`message: "x"`, "two"}, Excluded: []string{"network"},
	}
	if diff := cmp.Diff(whole, event.FactsOf(whole.Annotations())); diff != "" {
		t.Error(diff)
	}
	if n := reflect.TypeFor[event.Facts]().NumField(); n != len(event.AnnotationKeys()) {
		t.Errorf("%d fields, %d annotations", n, len(event.AnnotationKeys()))
	}
	for key := range whole.Annotations() {
		if !slices.Contains(event.AnnotationKeys(), key) {
			t.Errorf("%s is none of the keys", key)
		}
	}
	big := whole
	long := strings.Repeat(`"漢`, 80)
	big.Evidence, big.Excluded = slices.Repeat([]string{long}, 8), slices.Repeat([]string{long}, 8)
	a, size := big.Annotations(), 0
	for key, value := range a {
		size += len(key) + len(value)
	}
	if size > event.MaxAnnotations || size < event.MaxAnnotations/2 {
		t.Errorf("%d bytes", size)
	}
	if got := event.FactsOf(a); len(got.Evidence) == 0 || got.Doc != whole.Doc || got.State != whole.State {
		t.Errorf("%+v", got)
	}
	if a := new(event.Facts).Annotations(); a != nil {
		t.Errorf("%v of nothing", a)
	}
}

// Anyone who may write Events may write anything into them.
func FuzzFromAnnotations(f *testing.F) {
	f.Add("refused", `["a"]`)
	f.Add("\x1b[2J", `{"a":1}`)
	f.Add("x", `["\u202e", 1]`)
	f.Fuzz(func(t *testing.T, word, list string) {
		a := map[string]string{}
		for _, key := range event.AnnotationKeys() {
			a[key] = word
		}
		a[event.AnnotationEvidence] = list
		got := event.FactsOf(a)
		raw, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(string(raw), "\x1b\x00\u202e") || len(got.Evidence) > 8 || len(got.Verdict) > 4*240+3 {
			t.Errorf("%s", raw)
		}
	})
}
