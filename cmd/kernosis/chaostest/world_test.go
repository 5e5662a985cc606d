package chaostest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// rules turn log lines into a condition and Events. Kills are reported by a shipped rule.
const rules = `apiVersion: rules.kernosis.io/v1
conditions:
  AppBroken: {healthyReason: AppIsFine, healthyMessage: the app is fine}
rules:
- {name: app-fell, events: [log], logs: [app], pattern: 'fell over', clearPattern: 'stood up', condition: AppBroken, reason: AppFellOver, message: the app fell over, severity: critical}
- {name: app-hiccup, events: [log], logs: [app], pattern: 'hiccup', reason: AppHiccup, message: the app had a hiccup, severity: warning}
`

// appBroken is the condition of these rules.
const appBroken = "AppBroken"

// world is an agent and what surrounds it.
type world struct {
	t      *testing.T
	server *kubetest.Server
	proxy  *kubetest.Proxy
	node   string
	disk   *disklab.Disk // of the agent's state
	agent  *agenttest.Agent
	other  *agenttest.Agent // of another node, which only the network's harms affect
	oom    *inject.OOM
	log    string // path of the app's log
	url    string // of the agent

	repairs     *repairs
	controllers [2]*controller // one of them leads

	// What has happened, as this test observes it.
	victims *victims
	lines   happenings
	broken  bool // the app fell over, and did not stand up
	turns   int  // how often that changed
	witness *witness
	losses  losses
	counted map[float64]lossCounters // by the start of the agent's process

	harmed  map[part]func() // how to heal it
	blocked bool            // writes to the disk wait
	alive   bool            // the agent
	away    bool            // the API server, or its etcd
	// volatile: the agent keeps its state in memory, because it could not write at its start.
	volatile bool

	earlier string   // path of the earlier version of the agent; empty: none
	flipped []string // files of the state that were damaged
	flooded int      // kills beside those of oom
	groups  int      // cgroups that the test has made
	objects []string // of BPF, before the agent

	mu    sync.Mutex
	notes strings.Builder
	began time.Time
	sum   *summary
}

// newWorld starts an agent with further arguments, for tests that take lasts longer than a plan.
func newWorld(t *testing.T, server *kubetest.Server, sum *summary, lasts time.Duration, args ...string) *world {
	w := &world{
		t: t, server: server, node: server.Node(t), harmed: map[part]func(){}, counted: map[float64]lossCounters{}, began: time.Now(), sum: sum,
	}
	w.objects = objects(w)
	w.disk = disklab.NewExt4(t, 32<<20)
	dir := t.TempDir()
	w.log = filepath.Join(dir, "app.log")
	w.must(os.WriteFile(w.log, nil, 0o600))
	rulesDir := filepath.Join(dir, "rules.d")
	w.must(os.Mkdir(rulesDir, 0o755))
	w.must(os.WriteFile(filepath.Join(rulesDir, "app.yaml"), []byte(rules), 0o644))
	proxy, through := kubetest.NewProxy(t, server, server.Admin())
	w.proxy = proxy
	// A fixed port, so that a restarted agent has the same URL.
	address := kubetest.FreeAddress(t)
	w.url = "http://" + address
	server.CRDs(t)
	kubeconfig, namespace := server.Kubeconfig(t, through), server.Namespace(t)
	w.repairs = newRepairs(w, namespace)
	w.witness = w.watch()
	for i := range w.controllers {
		w.controllers[i] = newController(w, fmt.Sprintf("controller %d", i), kubeconfig, namespace)
	}
	w.agent = agenttest.New(t, agenttest.Program(t), append([]string{"--kubeconfig", kubeconfig, "--namespace", namespace, "--node-name", w.node,
		"--port", "0", "--prometheus-port", "0", "--report-socket", "", "--listen", address,
		"--rules-dir", rulesDir, "--log", "app=file:" + w.log}, args...)...)
	w.agent.Command = "agent"
	w.agent.State = filepath.Join(w.disk.Dir, "state")
	w.other = agenttest.New(t, agenttest.Program(t), "--kubeconfig", kubeconfig, "--namespace", namespace, "--node-name", w.repairs.other,
		"--port", "0", "--prometheus-port", "0", "--report-socket", "", "--log", "none")
	w.other.Command = "agent"
	w.other.Start()
	w.oom = &inject.OOM{StateDir: t.TempDir(), Limit: lasts + 10*time.Minute}
	w.victims = watchVictims(t)
	w.must(w.oom.Start(t.Context()))
	t.Cleanup(func() { _ = w.oom.Close() })
	// Registered last, so that it runs first: no other cleanup may hang because of a harm.
	t.Cleanup(w.healAll)
	w.start()
	w.agent.WaitSources(0)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// note writes to the diary, which a failure prints.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.notes, "%8.3fs  ", time.Since(w.began).Seconds())
	fmt.Fprintf(&w.notes, format+"\n", args...)
}

func (w *world) diary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notes.String()
}

// follow executes the steps of a plan.
func (w *world) follow(plan []step) {
	for _, s := range plan {
		<-time.After(s.after)
		w.note("%s", s.name)
		s.do(w)
		w.sample()
	}
}

// start starts the agent. On a disk that refuses writes it keeps its state in memory.
func (w *world) start() {
	w.t.Helper()
	w.agent.Start()
	w.alive = true
	w.volatile = w.harmed[disk] != nil
	w.losses.lags()
	if w.volatile {
		w.losses.refuses(true)
	} else {
		w.losses.unsaved = 0
	}
}

// kill makes the kernel OOM-kill a process in the test's cgroup.
func (w *world) kill() {
	w.t.Helper()
	_, err := w.oom.Kill(w.t.Context())
	w.must(err)
}

func (w *world) hiccups(n int) {
	w.t.Helper()
	w.write(strings.Repeat("hiccup\n", n))
	w.lines.add(n)
}

func (w *world) fall()    { w.write("it fell over\n"); w.turn(true) }
func (w *world) standUp() { w.write("it stood up\n"); w.turn(false) }

func (w *world) turn(broken bool) {
	if w.broken != broken {
		w.broken = broken
		w.turns++
	}
}

func (w *world) write(text string) {
	w.t.Helper()
	f, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	w.must(err)
	_, err = bytes.NewBufferString(text).WriteTo(f)
	w.must(err)
	w.must(f.Close())
}
