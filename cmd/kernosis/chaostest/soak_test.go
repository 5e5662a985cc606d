package chaostest_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A soak is a simulated day: the events of 24 hours in less time. After soakWarmUp hours nothing may
// grow any more, because caches, windows and the journal are full by then.
const (
	soakHours  = 24
	soakWarmUp = 8
	soakEvery  = 10 * time.Second // interval of measuring what the agent holds
)

// growth limits how much something that the agent holds may change, by its fitted slope, from the end
// of the warm-up to the end of the day: a part of its mean, or a small amount.
type growth struct {
	name  string
	unit  string
	of    func(*world) float64
	part  float64
	small float64
}

func growths() []growth {
	const mib = 1 << 20
	memory := func(of func(agenttest.Memory) float64) func(*world) float64 {
		return func(w *world) float64 { return of(agenttest.MemoryOf(w.t, w.agent.PID())) / mib }
	}
	metric := func(name string, unit float64) func(*world) float64 {
		return func(w *world) float64 {
			value, err := w.metric(name)
			w.must(err)
			return value / unit
		}
	}
	return []growth{
		{"resident memory", "MiB", memory(func(m agenttest.Memory) float64 { return m.RSS }), 0.05, 0},
		{"anonymous memory", "MiB", memory(func(m agenttest.Memory) float64 { return m.Anonymous }), 0.05, 0},
		{"heap in use", "MiB", metric("go_memstats_heap_inuse_bytes", mib), 0.1, 0},
		{"BPF maps and programs", "MiB", memory(func(m agenttest.Memory) float64 { return m.BPF }), 0, 0.01},
		{"goroutines", "", metric("go_goroutines", 1), 0, 3},
		{"open files", "", func(w *world) float64 {
			files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.agent.PID()))
			w.must(err)
			return float64(len(files))
		}, 0, 3},
		{"state on disk", "MiB", func(w *world) float64 { return float64(sizeOf(w, w.agent.State)) / mib }, 0, soakJournalMiB / 4.0},
		{"time series of /metrics", "", func(w *world) float64 {
			text, err := w.get(w.t.Context(), "/metrics")
			w.must(err)
			return float64(strings.Count(text, "\n"))
		}, 0.02, 0},
	}
}

// soakJournalMiB is the size of a journal that is full before the warm-up ends.
const soakJournalMiB = 2

// TestSoak causes faults, pods, rotations, reloads of rules and outages of the API server for a simulated
// day, and then checks that everything was reported and that nothing that the agent holds grew.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("make soak runs it")
	}
	testenv.HoldKernel(t)
	w := newWorld(t, cluster.Server(t), newSummary(), *soakFor, "--journal-mib", strconv.Itoa(soakJournalMiB))
	hour := *soakFor / soakHours
	s := &soak{w: w, all: growths()}
	s.values = make([][]float64, len(s.all))
	begin := time.Now()
	for h := range soakHours {
		s.hour(begin.Add(time.Duration(h)*hour), hour, h)
		if h == soakWarmUp-1 {
			clear(s.values)
		}
	}
	t.Logf("%d OOM kills, %d lines, %d Diagnoses in %v\n%s", len(w.known()), w.lines.total(), len(w.repairs.times), *soakFor, s.table())
	w.check()
}

// soak has the measured values of a day, for each element of all, in order of time.
type soak struct {
	w      *world
	all    []growth
	values [][]float64
}

// hour simulates one hour in twelve parts, each with an event, and measures in between.
func (s *soak) hour(begin time.Time, lasts time.Duration, n int) {
	s.w.t.Helper()
	const parts = 12
	looked := time.Now()
	for i := range parts {
		switch w := s.w; i {
		case 1:
			w.repairs.begin()
		case 2:
			s.pod(n)
		case 4:
			w.fall()
		case 5:
			w.must(os.Rename(w.log, w.log+".1"))
			w.write("")
		case 6:
			w.must(os.WriteFile(filepath.Join(filepath.Dir(w.log), "rules.d", "hour.yaml"), fmt.Appendf(nil, hourRules, n, n), 0o644))
		case 8:
			w.standUp()
		case 10:
			w.proxy.Cut()
		case 11:
			w.proxy.Do(nil)
		}
		for end := begin.Add(lasts * time.Duration(i+1) / parts); time.Now().Before(end); {
			s.w.kill()
			s.w.hiccups(10)
			if time.Since(looked) >= soakEvery {
				looked = time.Now()
				s.look()
			}
			<-time.After(min(lasts/parts/4, time.Until(end)+time.Millisecond))
		}
	}
}

// hourRules are the rules of an hour, so that each reload has a new rule.
const hourRules = `apiVersion: rules.kernosis.io/v1
rules:
- {name: hour-%d, events: [log], logs: [app], pattern: 'hour %d', reason: Hour, message: m, severity: warning}
`

// pod creates a pod, has a process in it OOM-killed, and deletes the pod.
func (s *soak) pod(n int) {
	s.w.t.Helper()
	w := s.w
	pods := w.server.Client().CoreV1().Pods(w.repairs.namespace)
	pod, err := pods.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", n)},
		Spec:       corev1.PodSpec{NodeName: w.node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.t.Run(pod.Name, func(t *testing.T) { // a subtest, which removes the cgroup at its end
		agenttest.KillIn(t, agenttest.PodGroup(t, string(pod.UID), 32<<20))
	})
	w.await("Event on the pod", func() (bool, string) {
		list, err := w.server.Client().CoreV1().Events(w.repairs.namespace).List(w.t.Context(), metav1.ListOptions{
			FieldSelector: "reason=OOMKilling,involvedObject.name=" + pod.Name,
		})
		return err == nil && len(list.Items) == 1, fmt.Sprint(len(list.Items), err)
	})
	now := int64(0)
	w.must(pods.Delete(w.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

func (s *soak) look() {
	for i, g := range s.all {
		s.values[i] = append(s.values[i], g.of(s.w))
	}
}

// table checks the growth of all values, and returns a table of it.
func (s *soak) table() string {
	s.w.t.Helper()
	var text strings.Builder
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "\tmean\tlowest\thighest\tgrowth in %d hours\tallowed\n", soakHours-soakWarmUp)
	for i, g := range s.all {
		values := s.values[i]
		low, high, mean := values[0], values[0], 0.0
		for _, v := range values {
			low, high, mean = min(low, v), max(high, v), mean+v/float64(len(values))
		}
		grown, most := slope(values)*float64(len(values)), max(g.part*mean, g.small)
		if grown > most {
			s.w.t.Errorf("%s grew by %.2f %s, of %.2f; at most %.2f", g.name, grown, g.unit, mean, most)
		}
		fmt.Fprintf(out, "%s\t%.2f %s\t%.2f\t%.2f\t%+.2f\t%.2f\n", g.name, mean, g.unit, low, high, grown, most)
	}
	_ = out.Flush()
	return text.String()
}

// slope returns the growth from one value to the next, by least squares.
func slope(values []float64) float64 {
	var x, y, xx, xy float64
	n := float64(len(values))
	for i, v := range values {
		at := float64(i)
		x, y, xx, xy = x+at, y+v, xx+at*at, xy+at*v
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

func TestSlope(t *testing.T) {
	if got := slope([]float64{3, 5, 7, 9}); got != 2 {
		t.Errorf("%v, want 2", got)
	}
}

// sizeOf returns the size of the files in a folder.
func sizeOf(w *world, dir string) (bytes int64) {
	w.must(filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // deleted meanwhile
		} else if err != nil {
			return err
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	}))
	return bytes
}
