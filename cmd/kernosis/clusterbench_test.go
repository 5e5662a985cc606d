package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// benchRules writes rules that report each OOM kill as a condition that ends before the next kill, as
// an Event of its own, or both. There are several rules for Events, because one rule may start only
// twenty at once.
func benchRules(b *testing.B, condition, event bool) string {
	const rules = 6
	var text strings.Builder
	text.WriteString("conditions:\n  Benched: {healthyReason: NotBenched, healthyMessage: none}\nrules:\n")
	if condition {
		text.WriteString("- {name: bench-condition, events: [oomkill], condition: Benched, reason: Killed, message: \"${task.pid}\", clearAfter: 300ms}\n")
	}
	for i := range rules {
		if !event {
			break
		}
		fmt.Fprintf(&text, "- {name: bench-event-%d, events: [oomkill], when: task.pid %% %d == %d, groupBy: [task.pid], reason: BenchKilled, message: \"${task.pid}\"}\n", i, rules, i)
	}
	b.Helper()
	return writeRules(b, text.String())
}

// seen records when a watcher got each object, by number or PID.
type seen struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (s *seen) note(pid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.at[pid]; !ok {
		s.at[pid] = time.Now()
	}
}

// after returns how long after each time the object with that index was seen.
func (s *seen) after(began []time.Time) (took []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range began {
		if seen, ok := s.at[strconv.Itoa(i)]; ok {
			took = append(took, seen.Sub(at))
		}
	}
	return took
}

// follow calls see with each object of a watch until the benchmark ends.
func follow(b *testing.B, w watch.Interface, err error, see func(watch.Event)) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			see(e)
		}
	}()
	b.Cleanup(func() { w.Stop(); <-ended })
}

// BenchmarkCluster measures the time from real OOM kills, by the kernel's timestamp, until a watcher
// of the API server gets the condition or the Event. For comparison it measures a plain PATCH and a
// plain POST: until they are answered, and until a watcher gets what they wrote. An agent that
// writes both has two requests in flight, which wait for each other on a small machine. "console"
// leaves the kernel's console unchanged.
func BenchmarkCluster(b *testing.B) {
	b.Run("condition", func(b *testing.B) { quietConsole(b); benchCluster(b, true, false) })
	b.Run("event", func(b *testing.B) { quietConsole(b); benchCluster(b, false, true) })
	b.Run("both", func(b *testing.B) { quietConsole(b); benchCluster(b, true, true) })
	b.Run("console", func(b *testing.B) { benchCluster(b, false, true) })
}

// quietConsole stops the kernel from writing kills to a console until the benchmark ends. The process
// that is out of memory writes them, and blocks its CPU meanwhile: 2 ms per kill on a virtual
// machine's serial port.
func quietConsole(b *testing.B) {
	b.Helper()
	const level = "/proc/sys/kernel/printk"
	was, err := os.ReadFile(level)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.WriteFile(level, was, 0); err != nil {
			b.Error(err)
		}
	})
	if err := os.WriteFile(level, []byte("1"), 0); err != nil {
		b.Fatal(err)
	}
}

func benchCluster(b *testing.B, writeConditions, writeEvents bool) {
	needKernel(b)
	const each = 40
	server := kubetest.New(b, kubetest.Options{})
	args := []string{"--rules-dir", benchRules(b, writeConditions, writeEvents), "--heartbeat", "0"}
	if !writeConditions {
		args = append(args, "--k8s-exporter-update-node-conditions=false")
	}
	if !writeEvents {
		args = append(args, "--k8s-exporter-write-events=false")
	}
	a := newClusterAgent(b, server, args...)
	a.Path, a.Env = agenttest.Program(b), nil // the test binary contains more, and takes more memory
	a.Start()
	a.WaitSources(0)
	client, ctx := server.Client(), context.Background()
	// Protobuf, so that decoding a large Node does not distort the time.
	config := server.Admin()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	watching, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	newSeen := func() *seen { return &seen{at: map[string]time.Time{}} }
	conditions, events, bareConditions, bareEvents := newSeen(), newSeen(), newSeen(), newSeen()
	bareNode := server.Node(b)
	for node, to := range map[string]*seen{a.node: conditions, bareNode: bareConditions} {
		nodes, err := watching.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
		follow(b, nodes, err, func(e watch.Event) {
			if node, ok := e.Object.(*corev1.Node); ok {
				for _, c := range node.Status.Conditions {
					if c.Type == "Benched" && c.Status == corev1.ConditionTrue {
						to.note(c.Message)
					}
				}
			}
		})
	}
	for reason, to := range map[string]*seen{"BenchKilled": events, "Bare": bareEvents} {
		reported, err := watching.CoreV1().Events(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		follow(b, reported, err, func(e watch.Event) {
			if event, ok := e.Object.(*corev1.Event); ok {
				to.note(event.Message)
			}
		})
	}
	oom := &inject.OOM{StateDir: b.TempDir(), Limit: inject.MaxDuration}
	if err := oom.Start(ctx); err != nil {
		b.Fatal(err)
	}
	defer oom.Close()
	if writeConditions {
		a.awaitCondition("Benched", "False NotBenched: none")
	}

	// The bare Node has as many conditions as the agent's, because a Node's size matters.
	own, err := client.CoreV1().Nodes().Get(ctx, a.node, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	bare := map[string]any{"status": map[string]any{"conditions": own.Status.Conditions}}
	body, err := json.Marshal(bare)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, bareNode, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		b.Fatal(err)
	}
	var patch, post, handled, condition, event []time.Duration
	var patched, posted []time.Time // start times of the requests
	for b.Loop() {
		for range each {
			i := len(patched)
			if _, err := oom.Kill(ctx); err != nil {
				b.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond) // until the agent's writes are done
			now := time.Now()
			body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Benched","status":"True","reason":"Killed","message":"%d"}]}}`, i)
			if _, err := client.CoreV1().Nodes().Patch(ctx, bareNode, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
				b.Fatal(err)
			}
			patch, patched = append(patch, time.Since(now)), append(patched, now)
			// Let the server become idle first, as it is for the agent's Event request.
			time.Sleep(500 * time.Millisecond)
			now = time.Now()
			if _, err := client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "bare-"}, Reason: "Bare", Message: strconv.Itoa(i), Type: "Warning", Count: 1,
				InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: bareNode, UID: types.UID(bareNode)},
				FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Source: corev1.EventSource{Component: "bare", Host: bareNode},
			}, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			post, posted = append(post, time.Since(now)), append(posted, now)
			time.Sleep(1200 * time.Millisecond) // until the condition has ended, and the second in which both writes coalesce
		}
	}
	entries := a.Wait("last kill", time.Minute, func(entries []journal.Entry) bool {
		return len(kills(entries, oom.Cgroup())) >= len(patch)
	})
	for _, e := range entries {
		if pids := kills([]journal.Entry{e}, oom.Cgroup()); len(pids) > 0 {
			handled = append(handled, e.Now.Sub(e.Event.Time))
			pid := strconv.FormatUint(uint64(pids[0]), 10)
			if at, ok := conditions.at[pid]; ok {
				condition = append(condition, at.Sub(e.Event.Time))
			}
			if at, ok := events.at[pid]; ok {
				event = append(event, at.Sub(e.Event.Time))
			}
		}
	}
	patchSeen, postSeen := bareConditions.after(patched), bareEvents.after(posted)
	if writeConditions && len(condition) < len(patch)*9/10 || writeEvents && len(event) < len(post)*9/10 {
		b.Fatalf("of %d kills, %d conditions and %d Events were seen", len(patch), len(condition), len(event))
	}
	median := func(d []time.Duration) float64 { slices.Sort(d); return d[len(d)/2].Seconds() * 1e3 }
	for _, m := range []struct {
		name string
		d    []time.Duration
	}{{"patch", patch}, {"post", post}, {"patch-seen", patchSeen}, {"post-seen", postSeen}, {"handled", handled}, {"condition", condition}, {"event", event}} {
		if len(m.d) == 0 {
			continue // not written
		}
		b.ReportMetric(median(m.d), m.name+"-p50-ms")
		b.ReportMetric(m.d[len(m.d)*99/100].Seconds()*1e3, m.name+"-p99-ms")
	}
	if writeConditions {
		b.ReportMetric(median(condition)/median(patch), "condition/patch")
		b.ReportMetric(median(condition)/median(patchSeen), "condition/patch-seen")
	}
	if writeEvents {
		b.ReportMetric(median(event)/median(post), "event/post")
		b.ReportMetric(median(event)/median(postSeen), "event/post-seen")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkClusterIdle measures what an agent without faults writes to the API server and to etcd. What
// an agent costs its node is measured by BenchmarkPeers alone.
func BenchmarkClusterIdle(b *testing.B) {
	needKernel(b)
	const idle = time.Minute
	server := kubetest.New(b, kubetest.Options{})
	a := newClusterAgent(b, server, "--heartbeat", "0")
	a.Start()
	a.WaitSources(0)
	a.awaitCondition("DiskUnhealthy", "False DiskIsHealthy: no device has repeated I/O errors")
	for b.Loop() {
		time.Sleep(20 * time.Second) // until the work of the start is done
		writes := func() float64 {
			m, n := server.APIMetrics(b), 0.0
			for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE"} {
				for _, resource := range []string{"nodes", "events", "leases"} {
					n += m.Sum("apiserver_request_total", "verb", verb, "resource", resource)
				}
			}
			return n
		}
		etcd, requests := server.EtcdWrites(b), writes()
		time.Sleep(idle)
		after := server.EtcdWrites(b)
		b.ReportMetric(writes()-requests, "requests/min")
		b.ReportMetric(float64(after.PutBytes-etcd.PutBytes)/1024*60, "etcd-KiB/h")
	}
	b.ReportMetric(0, "ns/op")
}

// killMany makes the kernel OOM-kill n processes in a cgroup, given by its folder, four at a time. It
// uses small programs, because inject's start much more slowly than a kill takes.
func killMany(b *testing.B, cgroup string, n int) {
	b.Helper()
	const hog = `echo $$ > "$0"/cgroup.procs && exec dd if=/dev/zero of=/dev/null bs=1G count=1`
	var g errgroup.Group
	g.SetLimit(4)
	for range n {
		g.Go(func() error {
			out, err := exec.CommandContext(b.Context(), "sh", "-c", hog, cgroup).CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				return fmt.Errorf("dd was to be killed: %w: %s", err, out)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}
