package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// hangRules report an OOM kill in one cgroup as a condition, and log lines as Events.
const hangRules = `
conditions:
  AppBroken: {healthyReason: AppIsFine, healthyMessage: the app is fine}
rules:
- {name: app-killed, events: [oomkill], condition: AppBroken, reason: AppKilled, message: the app was killed, severity: critical, when: 'cgroup.path.endsWith("%s")', clearAfter: 1h}
- {name: app-hiccup, events: [log], logs: [app], pattern: 'hiccup', reason: AppHiccup, message: the app had a hiccup, severity: warning}
`

// reportedWithin is how soon the API server must have a fault, whatever the state of the disk.
const reportedWithin = 5 * time.Second

// hangTest is an agent whose state is on a disk that can hang, and a cgroup to kill in.
type hangTest struct {
	*clusterAgent
	hang func() (end func())
	oom  *inject.OOM
	add  func(lines ...string)
}

// onDisksThatHang runs a test for each way in which a disk hangs. A frozen filesystem blocks
// every write. A suspended device is not visible to the filesystem: the page cache accepts
// writes until one has to wait for the device.
func onDisksThatHang(t *testing.T, test func(*testing.T, *hangTest)) {
	t.Helper()
	testenv.OnlyInTestAll(t)
	t.Parallel()
	needKernel(t)
	const size = 64 << 20
	t.Run("fs-frozen", func(t *testing.T) {
		d := disklab.NewExt4(t, size)
		test(t, newHangTest(t, d.Dir, d.Freeze))
	})
	t.Run("dm-suspended", func(t *testing.T) {
		d, suspend := disklab.NewMappedExt4(t, size)
		test(t, newHangTest(t, d.Dir, suspend))
	})
}

func newHangTest(t *testing.T, dir string, hang func() (end func())) *hangTest {
	t.Helper()
	h := &hangTest{hang: hang}
	h.oom = &inject.OOM{StateDir: t.TempDir(), Limit: 5 * time.Minute, Suffix: "-" + strings.ReplaceAll(t.Name(), "/", "-")}
	if err := h.oom.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.oom.Close() })
	var path string
	path, h.add = appLog(t)
	h.clusterAgent = newClusterAgent(t, apiServer.Server(t), "--log", "app=file:"+path,
		"--rules-dir", writeRules(t, fmt.Sprintf(hangRules, filepath.Base(h.oom.Cgroup()))))
	h.State = filepath.Join(dir, "state")
	return h
}

func (h *hangTest) kill() {
	h.t.Helper()
	if _, err := h.oom.Kill(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// timed fails the test if something took longer than reportedWithin.
func (h *hangTest) timed(what string, since time.Time) {
	h.t.Helper()
	took := time.Since(since)
	h.t.Logf("%s after %v", what, took.Round(10*time.Millisecond))
	if took > testenv.Within(reportedWithin) {
		h.t.Errorf("%s after %v, want at most %v", what, took, reportedWithin)
	}
}

// killsReported waits until the Events of the cgroup's kills add up to want.
func (h *hangTest) killsReported(want int) {
	h.t.Helper()
	h.await(fmt.Sprintf("%d kills", want), time.Minute, func(ctx context.Context) (bool, string, error) {
		sum := 0
		list, err := h.events(ctx, "OOMKilling")
		for _, e := range list {
			if strings.Contains(e.Message, filepath.Base(h.oom.Cgroup())) {
				sum += int(e.Count)
			}
		}
		if sum > want {
			h.t.Fatalf("%d kills are reported, of %d", sum, want)
		}
		return sum == want, fmt.Sprintf("%d in %d Events", sum, len(list)), err
	})
}

// answer requests a page from the agent, which has to answer at once.
func (h *hangTest) answer(page string) (status int, body string) {
	h.t.Helper()
	client := &http.Client{Timeout: testenv.Within(reportedWithin)}
	res, err := client.Get(h.Log.URL(h.t) + page)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// metric returns the value of a metric of the agent.
func (h *hangTest) metric(name string) float64 {
	h.t.Helper()
	_, text := h.answer("/metrics")
	_, rest, ok := strings.Cut(text, "\n"+name+"{")
	line, _, _ := strings.Cut(rest, "\n")
	_, value, _ := strings.Cut(line, " ")
	n, err := strconv.ParseFloat(value, 64)
	if !ok || err != nil {
		h.t.Fatalf("no %s: %q, %v", name, line, err)
	}
	return n
}

func (h *hangTest) lease(ctx context.Context) (annotations map[string]string, err error) {
	l, err := h.server.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, lease.Name(h.node), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return l.Annotations, nil
}

// degraded waits until the agent reports, or no longer reports, in its Lease, its condition and at
// /readyz that the state disk hangs.
func (h *hangTest) degraded(want bool) {
	h.t.Helper()
	h.await(fmt.Sprintf("degraded %v", want), 40*time.Second, func(ctx context.Context) (bool, string, error) {
		annotations, err := h.lease(ctx)
		if err != nil {
			return false, "", err
		}
		node, err := h.server.Client().CoreV1().Nodes().Get(ctx, h.node, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		condition := "none"
		if i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "KernosisDegraded" }); i >= 0 {
			condition = node.Status.Conditions[i].Message
		}
		_, ready := h.answer("/readyz")
		shown := fmt.Sprintf("Lease %q, condition %q, readyz %q", annotations[lease.AnnotationDegraded], condition, ready)
		ok := true
		for _, text := range []string{annotations[lease.AnnotationDegraded], condition, ready} {
			ok = ok && strings.Contains(text, h.State) == want
		}
		return ok, shown, nil
	})
}

// hangs starts the agent and then makes its disk hang, until end is called.
func (h *hangTest) hangs() (end func()) {
	h.t.Helper()
	h.Start()
	h.WaitSources(0)
	h.awaitCondition("AppBroken", "False AppIsFine: the app is fine")
	return h.hang()
}

// TestTheStateDiskHangs makes the agent's state disk hang. Faults are reported as soon as ever, and
// when the disk is back, the journal has them all.
func TestTheStateDiskHangs(t *testing.T) { onDisksThatHang(t, reportsWhileItHangs) }

func reportsWhileItHangs(t *testing.T, h *hangTest) {
	end := h.hangs()
	hung := time.Now()

	h.kill()
	h.awaitCondition("AppBroken", "True AppKilled: the app was killed")
	h.timed("condition", hung)
	h.killsReported(1)
	h.timed("Event", hung)
	h.degraded(true)
	t.Logf("degraded after %v; the disk has not answered for %.1fs", time.Since(hung).Round(10*time.Millisecond), h.metric("kernosis_journal_late_seconds"))
	began := time.Now()
	h.add("hiccup")
	h.awaitEvents("AppHiccup", 1, time.Minute)
	h.timed("Event of a line", began)
	if status, text := h.answer("/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, text)
	}
	began = time.Now()
	h.add("hiccup")
	h.kill()
	h.killsReported(2)
	h.awaitEvents("AppHiccup", 2, time.Minute)
	h.timed("more Events", began.Add(10*time.Second)) // counts are written every 10 s
	if waiting, late := h.metric("kernosis_journal_waiting_entries"), h.metric("kernosis_journal_late_seconds"); waiting < 2 || late < 5 {
		t.Errorf("%v entries wait, late by %vs", waiting, late)
	}

	end()
	h.degraded(false)
	h.await("journal that has all", 20*time.Second, func(context.Context) (bool, string, error) {
		waiting, late, failed := h.metric("kernosis_journal_waiting_entries"), h.metric("kernosis_journal_late_seconds"), h.metric("kernosis_journal_failed_total")
		return waiting == 0 && late == 0 && failed == 0, fmt.Sprint(waiting, late, failed), nil
	})
	h.Kill()
	h.complete(2, 2)

	before := len(h.Entries())
	h.Start()
	h.WaitSources(before)
	h.add("hiccup")
	h.awaitEvents("AppHiccup", 3, time.Minute)
	h.killsReported(2)
	h.kill()
	h.killsReported(3)
	h.Stop()
	h.complete(3, 3)
}

// complete checks that the journal has all faults, each once and in order.
func (h *hangTest) complete(kills, hiccups int) {
	h.t.Helper()
	got := map[string]int{}
	last := uint64(0)
	damaged, err := journal.Read(filepath.Join(h.State, agent.JournalDir), 0, func(e journal.Entry) error {
		if e.Seq != last+1 {
			h.t.Errorf("entry %d behind %d", e.Seq, last)
		}
		last = e.Seq
		for _, tr := range e.Transitions {
			if p := tr.Problem; p != nil && (p.Rule == "app-hiccup" || p.Rule == "oom-kill" && strings.HasSuffix(h.oom.Cgroup(), filepath.Base(p.Subject))) {
				got[p.Rule]++
			}
		}
		return nil
	})
	if err != nil || damaged != 0 || got["oom-kill"] != kills || got["app-hiccup"] != hiccups {
		h.t.Errorf("the journal has %v, %d damaged lines, %v; want %d kills and %d hiccups", got, damaged, err, kills, hiccups)
	}
}

// TestTheStateDiskHangsAtTheEnd: an agent that shuts down says so in its Lease, sends what is
// pending, and ends, except for the thread that is stuck in the kernel.
func TestTheStateDiskHangsAtTheEnd(t *testing.T) { onDisksThatHang(t, endsWhileItHangs) }

func endsWhileItHangs(t *testing.T, h *hangTest) {
	end := h.hangs()
	h.await("a Lease", 30*time.Second, func(ctx context.Context) (bool, string, error) {
		_, err := h.lease(ctx)
		return err == nil, "", err
	})
	h.kill()
	h.awaitCondition("AppBroken", "True AppKilled: the app was killed")
	began := time.Now()
	h.Signal(os.Interrupt)
	h.await("a Lease that says it ends", 20*time.Second, func(ctx context.Context) (bool, string, error) {
		annotations, err := h.lease(ctx)
		return annotations[lease.AnnotationDraining] != "", fmt.Sprint(annotations), err
	})
	h.killsReported(1)
	h.await("its end", 25*time.Second, func(context.Context) (bool, string, error) {
		// Which threads wait for the disk is random; all others have ended.
		alive, err := h.threads()
		return len(alive) == 0, fmt.Sprint(alive), err
	})
	t.Logf("ended %v after the signal", time.Since(began).Round(10*time.Millisecond))
	end()
	h.Kill() // waits for its end
}

// threads returns the states of the agent's threads that neither have ended nor are stuck in
// the kernel.
func (h *hangTest) threads() (alive []string, err error) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", h.PID()))
	for _, path := range all {
		text, readErr := os.ReadFile(path)
		if readErr != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if state, _, _ := strings.Cut(rest, " "); !strings.Contains("DZX", state) {
			alive = append(alive, filepath.Base(filepath.Dir(path))+" "+state)
		}
	}
	return alive, err
}

// TestTheStateDiskHangsAtTheStart: an agent that starts while the disk hangs detects and reports
// faults.
func TestTheStateDiskHangsAtTheStart(t *testing.T) { onDisksThatHang(t, startsWhileItHangs) }

func startsWhileItHangs(t *testing.T, h *hangTest) {
	if err := os.MkdirAll(h.State, 0o700); err != nil {
		t.Fatal(err)
	}
	end := h.hang()
	began := time.Now()
	h.Start()
	h.WaitSources(0)
	t.Logf("sees after %v", time.Since(began).Round(10*time.Millisecond))
	h.awaitCondition("AppBroken", "False AppIsFine: the app is fine")
	began = time.Now()
	h.kill()
	h.awaitCondition("AppBroken", "True AppKilled: the app was killed")
	h.killsReported(1)
	h.timed("condition and Event", began)
	h.degraded(true)
	end()
	h.Stop()
}

// An agent that starts while it can't write its state still reads it: a condition stays True, and log
// lines of the downtime are reported once.
func TestTheStateDiskIsReadOnlyAtTheStart(t *testing.T) {
	testenv.OnlyInTestAll(t)
	t.Parallel()
	needKernel(t)
	disk := disklab.NewExt4(t, 64<<20)
	path, add := appLog(t)
	a := newClusterAgent(t, apiServer.Server(t), "--rules-dir", writeRules(t, clusterRules), "--log", "app=file:"+path)
	a.State = filepath.Join(disk.Dir, "state")
	a.Start()
	a.awaitCondition("AppBroken", "False AppIsFine: the app is fine")
	add("it fell over", "hiccup")
	a.awaitCondition("AppBroken", "True AppFellOver: the app fell over")
	a.awaitEvents("AppHiccup", 1, 30*time.Second)

	a.Kill()
	if err := disk.SetReadOnly(true); err != nil {
		t.Fatal(err)
	}
	add("hiccup")
	a.Start()
	a.awaitEvents("AppHiccup", 2, 30*time.Second)
	a.awaitCondition("AppBroken", "True AppFellOver: the app fell over")
	if wrong, err := a.events(t.Context(), "AppIsFine"); err != nil || len(wrong) > 0 {
		t.Errorf("the condition was False meanwhile: %+v, %v", wrong, err)
	}
	a.Stop()
}
