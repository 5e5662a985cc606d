package trigger

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// Compile checks the room for parameters by the names that a source may set: the source sets no
// others, and the docs name them.
func TestSourcesSetWhatTheySay(t *testing.T) {
	task := &event.Task{PID: 1, TGID: 1, Comm: "c", StartTime: 1}
	p := &problem.Problem{
		Rule: "r", Group: "g", Condition: "C", Reason: "R", Message: "m", Severity: problem.Info, State: problem.Firing,
		Subject: "s", Pod: "uid", FirstSeen: time.Unix(1, 0),
		Evidence: []*event.Event{{
			Kind: event.OOMKill, Task: task, Cgroup: &event.Cgroup{Path: "/a"}, Container: &event.Container{ID: "i", PodUID: "uid"},
			Device:   &event.Device{Major: 8, Name: "sda", Mounts: []event.Mount{{Path: "/", FSType: "xfs"}}},
			Conn:     &event.Conn{Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("10.0.0.2:2"), NetNS: 3},
			HungTask: &event.HungTaskData{Holder: task}, OOMKill: &event.OOMKillData{LimitCgroup: &event.Cgroup{Path: "/a"}},
			Mount: &event.MountData{Path: "/m", FSType: "ext4"}, FSError: &event.FSErrorData{FSType: "ext4"},
			Log: &event.LogData{Origin: "kernel", Captures: map[string]string{"pid": "1", "comm": "c", "device": "sda", "cgroup": "/x"}},
		}},
	}
	pod := &Pod{Namespace: "n", Name: "p", UID: "uid", Node: "n7", Container: "c"}
	have := map[Source][]string{}
	values, omitted := problemParameters(p, "n7", pod)
	if len(omitted) > 0 {
		t.Error(omitted)
	}
	// A probe omits the UID if the event says where the probe came from.
	p.Evidence = []*event.Event{{Kind: event.Probe, Probe: &event.ProbeData{Handler: "http", Endpoint: "10.0.0.2:80/healthz", Timeout: event.Duration(time.Second)}}}
	probed, _ := problemParameters(p, "n7", pod)
	maps.Copy(values, probed)
	have[SourceProblem] = slices.Collect(maps.Keys(values))
	ev := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "n"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "n", Name: "p", UID: "uid", FieldPath: "spec.initContainers{c}"},
		Reason:         "R", Message: "m", Source: corev1.EventSource{Host: "n7"},
	}
	known := Known{Pod: func(string, string) (*Pod, bool) { return pod, true }}
	have[SourceEvent] = slices.Collect(maps.Keys(ofEvent(&Matcher{}, ev, known, time.Unix(1, 0)).parameters))
	alert := &Alert{Labels: map[string]string{"alertname": "A", "node": "n7", "ns": "n", "pod": "p", "c": "c"}}
	m := &Matcher{alert: &alertMatcher{node: "node", podNamespace: "ns", podName: "pod", container: "c"}}
	have[SourceAlert] = slices.Collect(maps.Keys(ofAlert(m, alert, "", time.Unix(1, 0), known).parameters))
	have[SourceCron] = []string{"node"}
	docs, err := os.ReadFile("../../docs/triggers.md")
	if err != nil {
		t.Fatal(err)
	}
	for source, names := range have {
		said := CommonParameters(source)
		slices.Sort(said)
		slices.Sort(names)
		if !slices.Equal(said, names) {
			t.Errorf("%s sets %v, and says %v", source, names, said)
		}
		for _, n := range said {
			if !validParameter.MatchString(n) || !strings.Contains(string(docs), "`"+n+"`") {
				t.Errorf("%s is not reported", n)
			}
		}
	}
}

func TestContainerOf(t *testing.T) {
	for path, want := range map[string]string{
		"spec.containers{app}": "app", "spec.initContainers{init}": "init", "spec.ephemeralContainers{debug}": "debug",
		"": "", "spec.containers[2]": "", "spec.volumes{app}": "", "spec.containers{app": "", "containers{app}": "",
	} {
		if got := ContainerOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		73120 * time.Millisecond: "73.12s", time.Minute: "60s", 1: "0.000000001s", 100 * 24 * time.Hour: "8640000s",
	} {
		got := seconds(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
