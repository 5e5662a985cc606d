package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

func TestConfigCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		sources []Source
		want    []string
	}{
		"good":       {sources: sources()},
		"names":      {[]Source{{Name: ""}, {Name: "GPU"}, {Name: "a"}, {Name: "a"}}, []string{"[0].name: is missing", `[1].name: "GPU": want lower-case`, `[3].name: "a" is already used by sources[2]`}},
		"types":      {[]Source{{Name: "a", Conditions: []string{"Ready", "bad", "", "Good"}}, {Name: "b", Conditions: []string{"Good", "GOOD"}}}, []string{"Ready is reserved for Kubernetes", `"bad" is not PascalCase`, "has no type", "[1].conditions[0]: condition Good already belongs to source a", "[1].conditions[1]: condition GOOD already belongs to source a"}},
		"heartbeat":  {[]Source{{Name: "a", Heartbeat: time.Second}, {Name: "b", Heartbeat: 2 * time.Hour}}, []string{"[0].heartbeat: 1s, want 5s to 1h", "[1].heartbeat: 2h0m0s"}},
		"many":       {slices.Repeat([]Source{{Name: "a"}}, MaxSources+1), []string{"33 sources, at most 32"}},
		"many types": {[]Source{{Name: "a", Conditions: slices.Repeat([]string{"A"}, 17)}}, []string{"[0].conditions: 17, at most 16"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Config{Sources: tc.sources}).Check().Err()
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("got %v", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is missing in:\n%v", w, err)
				}
			}
		})
	}
}

// TestReports sends reports one after the other and checks each answer and the
// events that follow.
func TestReports(t *testing.T) {
	in, l := runIntake(t, Config{Sources: sources(), Owner: func(t string) string {
		if t == "KernelDeadlock" {
			return "kernel-deadlock"
		}
		return ""
	}})
	type want struct {
		outcome  Outcome // "": accepted
		text     string  // in the refusal, or the warnings
		reported []string
	}
	cond := func(fields string) string { return `{"source":"gpu-monitor","conditions":[{` + fields + `}]}` }
	ev := func(fields string) string { return `{"source":"gpu-monitor","events":[{` + fields + `}]}` }
	for _, tc := range []struct {
		name, body string
		uid        uint32
		key        string
		want
	}{
		{name: "false at first", body: cond(`"type":"GPUUnhealthy","status":false,"transition":"2026-01-02T15:04:05Z","reason":"Fine","message":"fine"`),
			want: want{reported: []string{"gpu-monitor/GPUUnhealthy ok Fine: fine"}}},
		{name: "heartbeat", body: cond(`"type":"GPUUnhealthy","status":false`)},
		{name: "true", body: cond(`"type":"GPUUnhealthy","status":"True","transition":"0001-01-01T00:00:00Z","reason":"XidError","message":"Xid 79"`),
			want: want{reported: []string{"gpu-monitor/GPUUnhealthy problem XidError: Xid 79"}}},
		{name: "message alone", body: cond(`"type":"GPUUnhealthy","status":true,"reason":"XidError","message":"Xid 80"`)},
		{name: "reason changes", body: cond(`"type":"GPUUnhealthy","status":true,"reason":"FellOffBus"`),
			want: want{reported: []string{"gpu-monitor/GPUUnhealthy problem FellOffBus: FellOffBus"}}},
		{name: "unknown", body: cond(`"type":"GPUUnhealthy","status":"Unknown","message":"no driver"`),
			want: want{reported: []string{"gpu-monitor/GPUUnhealthy unknown : no driver"}}},
		{name: "events", body: `{"source":"gpu-monitor","validFor":"30s","events":[{"severity":"info","timestamp":"2026-01-02T15:04:05.123Z","reason":"A","message":"a"},{"severity":"warn","reason":"B","message":"b\u001b[31m\n"}],"conditions":null}`,
			want: want{reported: []string{"gpu-monitor/info problem A: a", `gpu-monitor/warn problem B: b\x1b[31m`}, text: "events[1].message characters that can't be shown"}},
		{name: "long message", body: ev(`"severity":"info","reason":"A","message":"` + strings.Repeat("ä", 600) + `"`),
			want: want{reported: []string{"gpu-monitor/info problem A: " + strings.Repeat("ä", 510) + "…"}, text: "events[0].message cut at 1024 bytes"}},
		{name: "clock set back since", body: cond(`"type":"GPUUnhealthy","status":false,"transition":"` + time.Now().Add(time.Hour).Format(time.RFC3339) + `","message":"fine"`),
			want: want{reported: []string{"gpu-monitor/GPUUnhealthy ok : fine"}, text: "is in the future, treated as now"}},
		{name: "nothing in it", body: `{"source":"events-only"}`},

		{name: "not JSON", body: `{"source":`, want: want{outcome: Invalid, text: "not JSON: unexpected end"}},
		{name: "text behind", body: `{"source":"gpu-monitor"} x`, want: want{outcome: Invalid, text: "not JSON"}},
		{name: "a list", body: `[]`, want: want{outcome: Invalid, text: "got array, want an object"}},
		{name: "unknown field", body: ev(`"severity":"info","reason":"A","colour":"red"`), want: want{outcome: Invalid, text: "events[0].colour unknown field"}},
		{name: "other case", body: `{"Source":"gpu-monitor"}`, want: want{outcome: Invalid, text: "Source unknown field"}},
		{name: "field twice", body: `{"source":"gpu-monitor","source":"door-monitor"}`, want: want{outcome: Invalid, text: "source duplicate field"}},
		{name: "wrong type", body: ev(`"severity":"info","reason":7`), want: want{outcome: Invalid, text: "events.reason got number, want a string"}},
		{name: "no source", body: `{}`, want: want{outcome: Invalid, text: "source is missing"}},
		{name: "severity", body: ev(`"severity":"fatal","reason":"A"`), want: want{outcome: Invalid, text: `events[0].severity "fatal", want info or warn`}},
		{name: "reason", body: ev(`"severity":"info","reason":"out of memory"`), want: want{outcome: Invalid, text: `events[0].reason "out of memory" is not PascalCase`}},
		{name: "no reason", body: cond(`"type":"GPUHot","status":true`), want: want{outcome: Invalid, text: "conditions[0].reason is missing"}},
		{name: "status", body: cond(`"type":"GPUHot","status":"yes"`), want: want{outcome: Invalid, text: `conditions[0].status "yes", want true, false or "Unknown"`}},
		{name: "no status", body: cond(`"type":"GPUHot"`), want: want{outcome: Invalid, text: "conditions[0].status is missing"}},
		{name: "no time", body: ev(`"severity":"info","reason":"A","timestamp":"yesterday"`), want: want{outcome: Invalid, text: `events[0].timestamp "yesterday": want a time`}},
		{name: "future", body: ev(`"severity":"info","reason":"A","timestamp":"2999-01-01T00:00:00Z"`), want: want{reported: []string{"gpu-monitor/info problem A: A"}, text: "is in the future, treated as now"}},
		{name: "validFor", body: `{"source":"gpu-monitor","validFor":"1s"}`, want: want{outcome: Invalid, text: "validFor 1s, want 5s to 1h0m0s"}},
		{name: "type twice", body: `{"source":"gpu-monitor","conditions":[{"type":"GPUHot","status":false},{"type":"GPUHot","status":false}]}`, want: want{outcome: Invalid, text: `conditions[1].type "GPUHot" is listed twice`}},
		{name: "many events", body: `{"source":"gpu-monitor","events":[` + strings.Repeat(`{},`, 100) + `{}]}`, want: want{outcome: Invalid, text: "events 101, at most 100"}},
		{name: "Kubernetes' own", body: cond(`"type":"Ready","status":false`), want: want{outcome: Invalid, text: "Ready is reserved for Kubernetes"}},
		{name: "several mistakes", body: `{"source":"gpu-monitor","events":[{"severity":"x","reason":"A"},{"severity":"info","reason":"b c"}]}`, want: want{outcome: Invalid, text: "events[1].reason"}},

		{name: "other source", body: `{"source":"nobody"}`, want: want{outcome: Forbidden, text: `source "nobody" is not in`}},
		{name: "other user", body: `{"source":"gpu-monitor"}`, uid: 4711, want: want{outcome: Forbidden, text: "user 4711 may not report"}},
		{name: "second user", body: `{"source":"door-monitor"}`, uid: 4711},
		{name: "other's condition", body: cond(`"type":"DoorOpen","status":false`), want: want{outcome: Conflict, text: "DoorOpen belongs to source door-monitor"}},
		{name: "a rule's condition", body: cond(`"type":"KernelDeadlock","status":false`), want: want{outcome: Conflict, text: "KernelDeadlock is set by rule kernel-deadlock"}},
		{name: "nobody's condition", body: cond(`"type":"Whatever","status":false`), want: want{outcome: Forbidden, text: "Whatever is not in the agent's configuration"}},
		{name: "key", body: `{"source":"gpu-monitor"}`, key: "ä", want: want{outcome: Invalid, text: "Idempotency-Key"}},
	} {
		answer, err := in.Report(Peer{UID: tc.uid}, tc.key, []byte(tc.body))
		outcome, text := Outcome(""), fmt.Sprint(answer.Warnings)
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			outcome, text = refusal.Outcome, refusal.Error()
		} else if err != nil {
			t.Fatal(err)
		}
		text = strings.NewReplacer("{", "", "}", "").Replace(text)
		if outcome != tc.outcome || !strings.Contains(text, tc.text) {
			t.Errorf("%s: got %q: %s, want %q: %s", tc.name, outcome, text, tc.outcome, tc.text)
		}
		if diff := cmp.Diff(append([]string{}, tc.reported...), l.take()); diff != "" {
			t.Errorf("%s: reported (-want +got):\n%s", tc.name, diff)
		}
	}
	const gpu = "gpu-monitor"
	counted(t, in.counts.reports, 10, gpu, string(Accepted))
	counted(t, in.counts.reports, 2, gpu, string(Conflict))
	counted(t, in.counts.reports, 1, gpu, string(Forbidden))
	counted(t, in.counts.events, 4, gpu)
	counted(t, in.counts.changes, 5, gpu)
	counted(t, in.counts.warnings, 4, gpu)
	counted(t, in.counts.reports, 2, "", string(Forbidden))
	counted(t, in.counts.reports, 9, "", string(Invalid))
}

// ReportLasting emits the conditions as the daemons reported them.
func TestReportLasting(t *testing.T) {
	in, l := runIntake(t, Config{Sources: sources()})
	asked := newReported()
	in.ReportLasting(asked.emit)
	if got := asked.take(); len(got) > 0 {
		t.Errorf("%q before a report", got)
	}
	for _, c := range []client.Condition{
		{Type: "GPUHot", Status: client.True, Reason: "Hot", Message: "90 °C", Transition: time.Now()},
		{Type: "GPUUnhealthy", Status: client.True, Reason: "XidError", Message: "Xid 79", Transition: time.Now()},
		{Type: "GPUUnhealthy", Status: client.True, Reason: "XidError", Message: "not reported", Transition: time.Now()},
		{Type: "GPUHot", Status: client.False, Message: "50 °C", Transition: time.Now()},
	} {
		if _, err := in.Report(Peer{}, "", body(t, status("gpu-monitor", c))); err != nil {
			t.Fatal(err)
		}
	}
	reported := l.take()
	in.ReportLasting(asked.emit)
	if got, want := asked.take(), []string{"gpu-monitor/GPUUnhealthy problem XidError: Xid 79", "gpu-monitor/GPUHot ok : 50 °C"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q of %q", got, want, reported)
	}
	if got := l.take(); len(got) > 0 {
		t.Errorf("%q to others", got)
	}
}

func TestFutureTransition(t *testing.T) {
	now := time.Now().Round(0)
	for _, ahead := range []time.Duration{clockSlack, clockSlack + time.Second, 2 * time.Hour} {
		c := checker{now: now}
		got := c.condition("", &wireCondition{Type: "GPUHot", Status: []byte("false"), Transition: now.Add(ahead).Format(time.RFC3339Nano)})
		if warned := len(c.warnings) > 0; !got.Transition.Equal(now) || len(c.mistakes) > 0 || warned != (ahead > clockSlack) {
			t.Errorf("%v ahead: %v, mistakes %v, warnings %v", ahead, got.Transition.Sub(now), c.mistakes, c.warnings)
		}
	}
}

// TestExpiry follows a condition whose heartbeats stop and come back.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, err := New(Config{Sources: sources()[:1]})
		if err != nil {
			t.Fatal(err)
		}
		l := newReported()
		go func() { _ = in.Run(t.Context(), l.emit) }()
		synctest.Wait()
		started := time.Now().UTC().Format(time.RFC3339)
		post := func(s client.Status) {
			t.Helper()
			if _, err := in.Report(Peer{}, "", body(t, s)); err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, lines ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(append([]string{}, lines...), l.take()); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", when, diff)
			}
		}
		bad := client.Condition{Type: "GPUUnhealthy", Status: client.True, Reason: "XidError", Message: "Xid 79"}
		// As after a restart: nothing is reported before the time to report has passed.
		time.Sleep(59 * time.Second)
		want("before the first report")
		post(status("gpu-monitor", bad))
		want("first report", "gpu-monitor/GPUUnhealthy problem XidError: Xid 79")
		time.Sleep(time.Second)
		want("the other is never reported", "gpu-monitor/GPUHot unknown : gpu-monitor has not reported it since the agent started at "+started)
		// Heartbeats with a validity of their own.
		for range 10 {
			post(client.Status{Source: "gpu-monitor", ValidFor: "10s", Conditions: []client.Condition{bad}})
			time.Sleep(9 * time.Second)
			want("heartbeat")
		}
		heard := time.Now().Add(-9 * time.Second).UTC().Format(time.RFC3339)
		time.Sleep(time.Second)
		want("silence", "gpu-monitor/GPUUnhealthy unknown : gpu-monitor has not reported it since "+heard)
		time.Sleep(time.Hour)
		want("more silence")
		post(status("gpu-monitor", bad))
		want("it is back", "gpu-monitor/GPUUnhealthy problem XidError: Xid 79")
		counted(t, in.counts.expired, 2, "gpu-monitor")
	})
}

// TestRestart checks that the state of the earlier run stays valid for the rest of its heartbeat.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, err := New(Config{Sources: sources()[:1], Earlier: func(stem string) (time.Duration, bool) {
			return map[string]time.Duration{"check/gpu-monitor/GPUHot": time.Minute}[stem] + 20*time.Second, stem != "check/gpu-monitor/info"
		}})
		if err != nil {
			t.Fatal(err)
		}
		l := newReported()
		go func() { _ = in.Run(t.Context(), l.emit) }()
		want := func(when string, lines ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(lines, l.seen()); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", when, diff)
			}
		}
		want("at the start", "check/gpu-monitor/GPUUnhealthy true", "check/gpu-monitor/info true", "check/gpu-monitor/warn true")
		started := time.Now().UTC().Format(time.RFC3339)
		time.Sleep(40*time.Second - 1)
		want("before its end")
		time.Sleep(time.Nanosecond)
		want("its end", "check/gpu-monitor/GPUUnhealthy false: gpu-monitor has not reported it since the agent started at "+started,
			"check/gpu-monitor/info false: gpu-monitor has not reported since "+started, "check/gpu-monitor/warn false: gpu-monitor has not reported since "+started)
		if _, err := in.Report(Peer{}, "", body(t, status("gpu-monitor", client.Condition{Type: "GPUUnhealthy", Status: client.False}))); err != nil {
			t.Fatal(err)
		}
		want("a report", "check/gpu-monitor/info true", "check/gpu-monitor/warn true")
	})
}

// TestValidityIsAPeriod checks that the validity of a report is measured by the monotonic clock.
// By the wall clock, which is all that Round leaves, all reports would expire when somebody sets
// it forward. A synctest bubble has no monotonic clock, and a test must not set this machine's
// wall clock.
func TestValidityIsAPeriod(t *testing.T) {
	in, _ := runIntake(t, Config{Sources: sources()})
	check := func(when string) {
		t.Helper()
		in.mu.Lock()
		defer in.mu.Unlock()
		for name, st := range in.sources["gpu-monitor"].conditions {
			if st.until.IsZero() || st.until == st.until.Round(0) {
				t.Errorf("%s %s: valid until %v: no monotonic reading", when, name, st.until)
			}
		}
	}
	check("at the start")
	if _, err := in.Report(Peer{}, "", body(t, status("gpu-monitor", client.Condition{Type: "GPUHot", Status: client.False}))); err != nil {
		t.Fatal(err)
	}
	check("after a report")
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, err := New(Config{Sources: sources()})
		if err != nil {
			t.Fatal(err)
		}
		l := newReported()
		go func() { _ = in.Run(t.Context(), l.emit) }()
		synctest.Wait()
		limit := func(s client.Status, taken int, field string) {
			t.Helper()
			for i := range taken {
				if _, err := in.Report(Peer{}, "", body(t, s)); err != nil {
					t.Fatalf("report %d: %v", i, err)
				}
			}
			_, err := in.Report(Peer{}, "", body(t, s))
			refusal, ok := errors.AsType[*Refusal](err)
			if !ok || refusal.Outcome != RateLimit || refusal.Fields[0].Field != field || refusal.RetryAfter <= 0 {
				t.Fatalf("report %d: got %v, want too many %s", taken, err, field)
			}
			time.Sleep(refusal.RetryAfter)
			if _, err := in.Report(Peer{}, "", body(t, s)); err != nil {
				t.Fatalf("after %v: %v", refusal.RetryAfter, err)
			}
		}
		limit(client.Status{Source: "events-only"}, reportBurst, "reports")
		flood := client.Status{Source: "gpu-monitor", Events: slices.Repeat([]client.Event{{Severity: client.Info, Reason: "A"}}, 100)}
		limit(flood, 3, "events")
		l.take()
		// Sources don't affect each other, nor do a source's events affect its heartbeat.
		if _, err := in.Report(Peer{}, "", body(t, status("door-monitor"))); err != nil {
			t.Error(err)
		}
		if _, err := in.Report(Peer{}, "", body(t, status("gpu-monitor", client.Condition{Type: "GPUHot", Status: client.False}))); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		var refused *Refusal
		flips := 0
		for ; flips < 100 && refused == nil; flips++ {
			time.Sleep(time.Second)
			c := client.Condition{Type: "GPUHot", Status: client.True, Reason: "Hot"}
			if flips%2 == 1 {
				c.Status = client.False
			}
			_, err := in.Report(Peer{}, "", body(t, status("gpu-monitor", c)))
			refused, _ = errors.AsType[*Refusal](err)
		}
		if refused == nil || refused.Fields[0].Field != "conditions" || flips < changeBurst {
			t.Errorf("after %d changes: %v", flips, refused)
		}
	})
}

func TestTooManyReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, err := New(Config{Sources: sources()})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = in.Run(t.Context(), func(*event.Event) {}) }()
		synctest.Wait()
		var got error
		n := 0
		for ; got == nil && n < 100; n++ {
			time.Sleep(time.Second)
			_, got = in.Report(Peer{}, "", body(t, client.Status{Source: "events-only", Events: []client.Event{{Severity: client.Warn, Reason: fmt.Sprintf("R%d", n)}}}))
		}
		if got == nil || n != maxReasons+1 || !strings.Contains(got.Error(), "would exceed 50 reasons") {
			t.Errorf("after %d: %v", n, got)
		}
		if _, err := in.Report(Peer{}, "", body(t, client.Status{Source: "events-only", Events: []client.Event{{Severity: client.Warn, Reason: "R0"}}})); err != nil {
			t.Errorf("a known reason: %v", err)
		}
	})
}

// Reasons of refused reports don't count.
func TestReasonsOfRefusedReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, err := New(Config{Sources: sources()})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = in.Run(t.Context(), func(*event.Event) {}) }()
		synctest.Wait()
		report := func(reason string, n int) error {
			events := slices.Repeat([]client.Event{{Severity: client.Info, Reason: reason}}, n)
			_, err := in.Report(Peer{}, "", body(t, client.Status{Source: "gpu-monitor", Events: events}))
			return err
		}
		for err == nil {
			err = report("Known", 100)
		}
		for n := range maxReasons {
			time.Sleep(50 * time.Millisecond) // the limit of reports is not reached
			refusal, ok := errors.AsType[*Refusal](report(fmt.Sprintf("Refused%d", n), 100))
			if !ok || refusal.Outcome != RateLimit || refusal.Fields[0].Field != "events" {
				t.Fatalf("report %d: %v", n, refusal)
			}
		}
		time.Sleep(10 * time.Minute)
		if err := report("New", 1); err != nil {
			t.Error(err)
		}
	})
}

// A report that is sent again with its key has the same identities; other reports have their own.
func TestEventIdentity(t *testing.T) {
	in, l := runIntake(t, Config{Sources: sources()})
	two := body(t, client.Status{Source: "events-only", Events: slices.Repeat([]client.Event{{Severity: client.Info, Reason: "A"}}, 2)})
	for _, key := range []string{"k1", "k1", "k2", "", ""} {
		if _, err := in.Report(Peer{}, key, two); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for _, e := range l.events {
		seen[e.ID]++
	}
	if len(seen) != 8 || seen["k1/0"] != 2 || seen["k1/1"] != 2 || seen["k2/0"] != 1 {
		t.Errorf("%v", seen)
	}
}

func TestNotRunning(t *testing.T) {
	in, err := New(Config{Sources: sources()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = in.Report(Peer{}, "", []byte(`{"source":"events-only"}`))
	if refusal, ok := errors.AsType[*Refusal](err); !ok || refusal.Outcome != Closing {
		t.Errorf("got %v", err)
	}
}
