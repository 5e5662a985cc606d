package trigger_test

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

var db = &trigger.Pod{Namespace: "shop", Name: "db-0", UID: "4bb5c9f0-0000-4000-8000-000000000001", Labels: map[string]string{"app": "db"}}

// hit returns a problem about the pod db.
func hit(first time.Time) *problem.Problem {
	p := firing("oom-kill", "c0ffee, /kubepods/x", first)
	p.Pod, p.Subject, p.Condition = db.UID, "pod "+db.UID, "FrequentOOMKilling"
	return p
}

func TestWhichProblemsAreChosen(t *testing.T) {
	for spec, want := range map[string]bool{
		`rules: [other, oom-kill]`:                                 true,
		`rules: [oom]`:                                             false, // names, not expressions
		`conditions: [FrequentOOMKilling]`:                         true,
		`conditions: [DiskStalled]`:                                false,
		`reasons: [OOMKilling]`:                                    true,
		`reasons: [X]`:                                             false,
		`minSeverity: info`:                                        true,
		`minSeverity: warning`:                                     true,
		`minSeverity: critical`:                                    false,
		`namespaces: [shop]`:                                       true,
		`namespaces: [web]`:                                        false,
		`podSelector: {matchLabels: {app: db}}`:                    true,
		`podSelector: {}`:                                          true,
		`podSelector: {matchLabels: {app: web}}`:                   false,
		`rules: [oom-kill], reasons: [X]`:                          false,
		`rules: [oom-kill], namespaces: [shop], minSeverity: info`: true,
	} {
		e := engineWith(t, `{operationSet: s, sourceTemplate: {problemTemplate: {`+spec+`}}}`)
		if got := e.Problem(hit(start), db, start); (len(got) == 1) != want {
			t.Errorf("%s: %v", spec, names(got))
		}
	}
}

func TestPodsThatAreNone(t *testing.T) {
	specs := []string{
		`{operationSet: s, sourceTemplate: {problemTemplate: {namespaces: [shop]}}}`,
		`{operationSet: s, sourceTemplate: {problemTemplate: {podSelector: {}}}}`,
		anyOOM,
	}
	e := engineWith(t, specs...)
	// A problem about no pod does not match by properties of pods.
	if got := e.Problem(firing("oom-kill", "a", start), nil, start); len(got) != 1 || got[0].Labels[v1alpha1.LabelTrigger] != "t2" {
		t.Error(names(got))
	}
	// A problem of the whole node is not about the last pod hit.
	p := hit(start)
	p.Group = ""
	dx := only(t, e.Problem(p, db, start))
	if dx.Spec.PodReference != nil || dx.Spec.Parameters["podUID"] != "" || dx.Spec.NodeName != "n7" {
		t.Errorf("%+v", dx.Spec)
	}
	counts(t, e, "t0", 0, nil)
	// The names of an unknown pod are not known.
	dx = only(t, e.Problem(hit(start), nil, start))
	if dx.Spec.PodReference != nil || dx.Spec.Parameters["podUID"] != db.UID {
		t.Errorf("%+v", dx.Spec)
	}
	counts(t, e, "t0", 0, map[string]uint64{trigger.WithheldUnknownPod: 1})
	counts(t, e, "t1", 0, map[string]uint64{trigger.WithheldUnknownPod: 1})
	counts(t, e, "t2", 3, nil)
}

// Of all transitions of a problem only its beginning starts a Diagnosis.
func TestOnlyTheBeginningStarts(t *testing.T) {
	matchers := matchersOf(t, `{operationSet: s, cooldown: 0s, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`)
	e := engineOf(t, matchers...)
	p := hit(start)
	p.State = problem.Pending
	none(t, e.Problem(p, db, start))
	p.State = problem.Firing
	only(t, e.Problem(p, db, after(time.Minute)))
	for i := range 1000 { // a temporary problem whose count grows
		p.Count++
		p.LastSeen = after(time.Duration(i) * time.Second)
		p.Subject, p.Pod = "another", ""
		none(t, e.Problem(p, nil, p.LastSeen))
	}
	p.State = problem.Resolved
	none(t, e.Problem(p, db, after(time.Hour)))
	p = hit(after(2 * time.Hour))
	second := only(t, e.Problem(p, db, after(2*time.Hour)))
	// After a restart, everything is reported again.
	e = restarted(t, e, matchers)
	for _, first := range []time.Duration{0, 2 * time.Hour} {
		p = hit(after(first))
		none(t, e.Problem(p, db, after(first)))
		p.State = problem.Resolved
		none(t, e.Problem(p, db, after(first)))
	}
	// If the state is lost, the names are the same.
	e = engineOf(t, matchers...)
	only(t, e.Problem(hit(start), db, after(time.Minute)))
	if again := only(t, e.Problem(hit(after(2*time.Hour)), db, after(2*time.Hour))); again.Name != second.Name {
		t.Error(again.Name, second.Name)
	}
}

// A problem whose severity rises starts the triggers for that severity, and none twice.
func TestEscalation(t *testing.T) {
	e := engineWith(t,
		`{operationSet: s, cooldown: 0s, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`,
		`{operationSet: s, cooldown: 0s, sourceTemplate: {problemTemplate: {minSeverity: warning}}}`,
		`{operationSet: s, cooldown: 0s, sourceTemplate: {problemTemplate: {minSeverity: critical}}}`,
	)
	for i, step := range []struct {
		severity problem.Severity
		want     []string
	}{
		{problem.Info, []string{"t0"}},
		{problem.Info, nil},
		{problem.Critical, []string{"t1", "t2"}},
		{problem.Warning, nil},
		{problem.Critical, nil},
	} {
		p := hit(start)
		p.Severity = step.severity
		var got []string
		for _, dx := range e.Problem(p, db, after(time.Duration(i)*time.Minute)) {
			acceptable(t, dx)
			got = append(got, dx.Labels[v1alpha1.LabelTrigger])
		}
		if !cmp.Equal(got, step.want) {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

// A problem that is muted, or hidden by its cause, begins when that is over.
func TestHiddenProblems(t *testing.T) {
	matchers := matchersOf(t, anyOOM)
	e := engineOf(t, matchers...)
	p := hit(start)
	p.MutedUntil = after(time.Hour)
	for range 3 {
		none(t, e.Problem(p, db, start))
	}
	e = restarted(t, e, matchers)
	none(t, e.Problem(p, db, start))
	p.MutedUntil = time.Time{}
	only(t, e.Problem(p, db, after(time.Hour)))
	p.SuppressedBy = "cause"
	none(t, e.Problem(p, db, after(time.Hour)))
	counts(t, e, "t0", 1, nil)
	p = hit(after(2 * time.Hour))
	p.SuppressedBy = "cause"
	none(t, e.Problem(p, db, after(2*time.Hour)))
	counts(t, e, "t0", 1, map[string]uint64{trigger.WithheldSuppressed: 1})
}

// Two rules that fire because of one event are one episode of the subject.
func TestTwoProblemsOfOneEvent(t *testing.T) {
	e := engineWith(t, `{operationSet: s, cooldown: 0s, sourceTemplate: {problemTemplate: {reasons: [OOMKilling]}}}`)
	only(t, e.Problem(hit(start), db, start))
	p := hit(start)
	p.Rule = "oom-kill-frequent"
	none(t, e.Problem(p, db, start))
	counts(t, e, "t0", 1, map[string]uint64{trigger.WithheldSame: 1})
}

func TestWhatADiagnosisOfAProblemSays(t *testing.T) {
	e := engineWith(t, `{operationSet: oom, nodeName: elsewhere, parameters: {rule: mine, top: "5"}, ttl: 24h, sourceTemplate: {problemTemplate: {rules: [oom-kill]}}}`)
	p := hit(start)
	p.Message = "pg[811] killed\x1b[31m"
	p.Evidence = []*event.Event{{
		Kind: event.OOMKill, Time: start,
		Task:      &event.Task{PID: 812, TGID: 811, Comm: "pg", StartTime: event.Duration(73120 * time.Millisecond)},
		Cgroup:    &event.Cgroup{ID: 7, Path: "/kubepods/x/c0ffee"},
		Container: &event.Container{ID: "c0ffee", PodUID: db.UID, Name: "pg"},
		OOMKill:   &event.OOMKillData{LimitCgroup: &event.Cgroup{Path: "…/kubepods/x"}},
	}, {Kind: event.Log, Time: start, Log: &event.LogData{Log: "kmsg", Origin: "kernel", Captures: map[string]string{"pid": "1"}}}}
	dx := only(t, e.Problem(p, db, start))
	want := v1alpha1.DiagnosisSpec{
		OperationSet: "oom", NodeName: "n7", PodReference: &v1alpha1.PodReference{Namespace: "shop", Name: "db-0", Container: "pg"},
		Parameters: v1alpha1.Parameters{
			"node": "n7", "rule": "oom-kill", "reason": "OOMKilling", "message": `pg[811] killed\x1b[31m`, "subject": "pod " + db.UID,
			"condition": "FrequentOOMKilling", "severity": "warning", "pid": "812", "tgid": "811", "comm": "pg", "startTime": "73.12s",
			"cgroup": "/kubepods/x/c0ffee", "podUID": db.UID, "podNamespace": "shop", "podName": "db-0", "container": "pg",
			"containerID": "c0ffee", "top": "5",
		},
	}
	want.TTL.Duration = 24 * time.Hour
	if diff := cmp.Diff(want, dx.Spec); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{
		trigger.AnnotationTriggeredBy: `problem of rule oom-kill (OOMKilling, warning): pg[811] killed\x1b[31m`,
		trigger.AnnotationSubject:     "shop/db-0",
		trigger.AnnotationEpisode:     "2026-03-01T12:00:00.123456789Z",
		trigger.AnnotationPodUID:      db.UID,
		trigger.AnnotationOmitted:     "limitCgroup",
	}, dx.Annotations); diff != "" {
		t.Error(diff)
	}
	if dx.Namespace != "kernosis-system" || dx.Labels[v1alpha1.LabelTrigger] != "t0" || dx.Labels[trigger.LabelSource] != "problem" {
		t.Errorf("%+v", dx.ObjectMeta)
	}
}

// The UID of a probed pod is no parameter, because operations would enter the pod's network. The
// Diagnosis still has it, for those who ask what it is about.
func TestPodOfAProbe(t *testing.T) {
	conn := &event.Conn{Dst: netip.MustParseAddrPort("10.0.0.7:8080"), NetNS: 4026531840}
	for name, c := range map[string]struct {
		handler     string
		conn        *event.Conn
		netns, want string
	}{
		"of a connection":    {"http", conn, "4026531840", ""},
		"without connection": {"http", nil, "", ""},
		"a program":          {"exec", nil, "", db.UID},
	} {
		t.Run(name, func(t *testing.T) {
			e := engineWith(t, anyOOM)
			p := hit(start)
			p.Evidence = []*event.Event{{Kind: event.Probe, Conn: c.conn, Probe: &event.ProbeData{Handler: c.handler, Endpoint: "10.0.0.7:8080/healthz"}}}
			dx := only(t, e.Problem(p, db, start))
			if p := dx.Spec.Parameters; p["podUID"] != c.want || p["netns"] != c.netns || p["podName"] != "db-0" {
				t.Errorf("%v", p)
			}
			trigger.KeepOrigin(dx)
			if uid := trigger.PodUID(dx); uid != db.UID {
				t.Errorf("pod %q", uid)
			}
		})
	}
}

func TestParametersOfEvents(t *testing.T) {
	for name, test := range map[string]struct {
		event   *event.Event
		want    map[string]string
		omitted string
	}{
		"hung task": {
			&event.Event{Kind: event.HungTask, Task: &event.Task{PID: 5, TGID: 5, Comm: "mv", StartTime: 1}, HungTask: &event.HungTaskData{Holder: &event.Task{PID: 9}}},
			map[string]string{"pid": "5", "tgid": "5", "comm": "mv", "startTime": "0.000000001s", "holderPID": "9"}, "",
		},
		"holder by a hint": {
			&event.Event{Kind: event.HungTask, HungTask: &event.HungTaskData{Holder: &event.Task{PID: 9}, HolderHint: true}},
			nil, "holderPID",
		},
		"disk": {
			&event.Event{Kind: event.DiskIO, Device: &event.Device{Major: 259, Minor: 2, Name: "nvme0n1p2", Mounts: []event.Mount{{Path: "/data", FSType: "ext4"}}}},
			map[string]string{"device": "nvme0n1p2", "deviceNumber": "259:2", "mountPoint": "/data", "fsType": "ext4"}, "",
		},
		"disk that is gone": {
			&event.Event{Kind: event.DiskIO, Device: &event.Device{Major: 8, Minor: 0, Name: "8:0"}},
			map[string]string{"deviceNumber": "8:0"}, "",
		},
		"mount": {
			&event.Event{Kind: event.MountReadOnly, Mount: &event.MountData{FSType: "xfs", Path: "/a\nb"}},
			map[string]string{"fsType": "xfs"}, "mountPoint",
		},
		"filesystem": {
			&event.Event{Kind: event.FSError, FSError: &event.FSErrorData{FSType: "ext4"}},
			map[string]string{"fsType": "ext4"}, "",
		},
		"connection": {
			&event.Event{Kind: event.SockFail, Conn: &event.Conn{Src: netip.MustParseAddrPort("10.0.0.1:4711"), Dst: netip.MustParseAddrPort("[::ffff:10.0.0.7]:8080"), NetNS: 4026531840}},
			map[string]string{"netns": "4026531840", "source": "10.0.0.1", "address": "10.0.0.7", "port": "8080", "protocol": "tcp"}, "",
		},
		"connection without a source": {
			&event.Event{Kind: event.SockFail, Conn: &event.Conn{Src: netip.MustParseAddrPort("0.0.0.0:0"), Dst: netip.MustParseAddrPort("[fe80::1%eth0]:1")}},
			map[string]string{"address": "fe80::1", "port": "1", "protocol": "tcp"}, "",
		},
		"probe": {
			&event.Event{
				Kind: event.Probe, Conn: &event.Conn{Src: netip.MustParseAddrPort("10.0.0.1:4711"), Dst: netip.MustParseAddrPort("10.0.0.7:8080"), NetNS: 4026531840},
				Cgroup: &event.Cgroup{Path: "/kubepods/c"}, Container: &event.Container{ID: "8a1f", PodUID: "u"},
				Probe: &event.ProbeData{Handler: "http", Endpoint: "10.0.0.7:8080/healthz?full=1", Timeout: event.Duration(2 * time.Second)},
			},
			map[string]string{"netns": "4026531840", "source": "10.0.0.1", "address": "10.0.0.7", "port": "8080", "protocol": "http",
				"path": "/healthz?full=1", "timeout": "2s", "cgroup": "/kubepods/c"}, "",
		},
		"probe without a connection": {
			&event.Event{Kind: event.Probe, Probe: &event.ProbeData{Handler: "grpc", Endpoint: "[fd00::7]:50051", Timeout: event.Duration(1500 * time.Millisecond)}},
			map[string]string{"address": "fd00::7", "port": "50051", "protocol": "grpc", "timeout": "1.5s"}, "",
		},
		"exec probe": {
			&event.Event{Kind: event.Probe, Probe: &event.ProbeData{Handler: "exec", Endpoint: "cat /tmp/x", Timeout: event.Duration(time.Second)}},
			map[string]string{"timeout": "1s"}, "",
		},
		"line of the kernel": {
			&event.Event{Kind: event.Log, Log: &event.LogData{Log: "kmsg", Origin: "kernel", Captures: map[string]string{"pid": "5", "comm": "mv", "device": "sda", "port": "ata1"}}},
			map[string]string{"pid": "5", "comm": "mv", "device": "sda"}, "",
		},
		"line of anybody": {
			&event.Event{Kind: event.Log, Log: &event.LogData{Log: "journald", Origin: "app.service", Captures: map[string]string{"pid": "1", "device": "sda"}}},
			nil, "",
		},
		"container of another pod": {
			&event.Event{Kind: event.DiskIO, Container: &event.Container{ID: "beef", PodUID: "other"}}, nil, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := engineWith(t, anyOOM)
			p := firing("oom-kill", "g", start)
			p.Reason, p.Message, p.Subject, p.Severity = "", "", "", "info"
			p.Evidence = []*event.Event{test.event}
			dx := only(t, e.Problem(p, nil, start))
			got := dx.Spec.Parameters
			for _, always := range []string{"node", "rule", "severity"} {
				delete(got, always)
			}
			want := v1alpha1.Parameters{}
			maps.Copy(want, test.want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if have := dx.Annotations[trigger.AnnotationOmitted]; have != test.omitted {
				t.Errorf("omitted %q, want %q", have, test.omitted)
			}
		})
	}
}

// Cooldown is by subject, not by problem: a pod whose thirty threads hang gets one Diagnosis.
func TestManyProblemsOfASubject(t *testing.T) {
	e := engineWith(t, anyOOM)
	started := 0
	for i := range 30 {
		p := hit(after(time.Duration(i)))
		p.Group += string(rune('a' + i))
		started += len(e.Problem(p, db, after(time.Duration(i))))
	}
	if started != 1 {
		t.Error(started)
	}
	// Problems that only logs report name the writer of the log as subject, so they are kept apart.
	for _, group := range []string{"sda", "sdb"} {
		p := firing("oom-kill", group, start)
		p.Subject, p.Evidence = "kernel", []*event.Event{{Kind: event.Log, Log: &event.LogData{Origin: "kernel"}}}
		only(t, e.Problem(p, nil, after(time.Minute)))
	}
}
