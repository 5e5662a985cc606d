package chaostest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// part is what a harm affects.
type part string

const (
	disk    part = "disk"    // with the agent's state
	network part = "network" // between agent and API server
	process part = "process" // the agent's process
	manager part = "controller"
)

var parts = []part{disk, network, process, manager} //nolint:gochecknoglobals // a constant

// harm is something that goes wrong for a while. start returns a function that heals it.
type harm struct {
	name   string
	of     part
	weight int
	start  func(*world, *rand.Rand) (heal func())
}

func harms() []harm {
	return []harm{
		{"disk freezes", disk, 3, func(w *world, _ *rand.Rand) func() {
			w.frozen = true
			thaw := w.disk.Freeze()
			return func() { w.frozen = false; thaw() }
		}},
		{"disk is full", disk, 3, func(w *world, _ *rand.Rand) func() { return w.fill() }},
		{"disk is read-only at a start", disk, 2, func(w *world, r *rand.Rand) func() {
			w.killAgent(r, nil, func() {
				w.must(w.disk.SetReadOnly(true))
				w.harmed[disk] = func() {} // from the start on
			})
			return func() { w.must(w.disk.SetReadOnly(false)) }
		}},
		{"network is cut", network, 3, func(w *world, _ *rand.Rand) func() {
			w.proxy.Cut()
			return func() { w.proxy.Do(nil) }
		}},
		{"API server refuses", network, 2, func(w *world, r *rand.Rand) func() {
			codes := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusConflict}
			code := codes[r.IntN(len(codes))]
			return w.sometimes(r, 0.7, func(rw http.ResponseWriter, _ *http.Request) bool {
				return kubetest.Answer(rw, code, http.StatusText(code))
			})
		}},
		{"answers are lost", network, 2, func(w *world, r *rand.Rand) func() {
			return w.sometimes(r, 0.5, func(_ http.ResponseWriter, req *http.Request) bool {
				// A watch does not end, so there is no answer to lose.
				return !req.URL.Query().Has("watch") && w.proxy.LoseAnswer(req)
			})
		}},
		{"requests are late", network, 2, func(w *world, r *rand.Rand) func() {
			late := time.Duration(r.Int64N(int64(time.Second)))
			return w.sometimes(r, 0.8, func(_ http.ResponseWriter, req *http.Request) bool {
				select {
				case <-time.After(late):
				case <-req.Context().Done():
				}
				return false
			})
		}},
		{"requests come twice", network, 2, func(w *world, r *rand.Rand) func() {
			return w.sometimes(r, 0.7, func(_ http.ResponseWriter, req *http.Request) bool { return w.proxy.Double(req) })
		}},
		{"API server is killed", network, 1, func(w *world, _ *rand.Rand) func() {
			w.server.Kill(w.t)
			w.away = true
			return func() { w.server.Start(w.t); w.away = false }
		}},
		{"etcd is killed", network, 1, func(w *world, _ *rand.Rand) func() {
			w.server.KillEtcd(w.t)
			w.away = true
			return func() { w.server.StartEtcd(w.t); w.away = false }
		}},
		{"agent is stopped", process, 2, func(w *world, _ *rand.Rand) func() {
			w.agent.Signal(syscall.SIGSTOP)
			return func() { w.signal(syscall.SIGCONT) }
		}},
		{"agent gets little CPU", process, 2, func(w *world, _ *rand.Rand) func() { return w.starve() }},
		{"controller is stopped", manager, 2, func(w *world, r *rand.Rand) func() {
			c := w.controllers[r.IntN(len(w.controllers))]
			c.signal(syscall.SIGSTOP)
			return func() { c.signal(syscall.SIGCONT) }
		}},
	}
}

// harm starts a harm, which lasts until heal.
func (w *world) harm(h harm, r *rand.Rand) {
	w.t.Helper()
	w.harmed[h.of] = h.start(w, r)
	switch h.of {
	case disk:
		w.losses.refuses(w.harmed[process] != nil)
	case process:
		w.losses.lags()
	}
	w.sum.fault(h.name)
}

// heal ends the harm of a part, if there is one.
func (w *world) heal(p part) {
	w.t.Helper()
	heal := w.harmed[p]
	if heal == nil {
		return
	}
	frozen := p == disk && w.frozen
	heal()
	delete(w.harmed, p)
	switch p {
	case process:
		w.losses.lags()
	case disk:
		if !w.volatile {
			w.losses.accepts()
		}
	}
	if frozen {
		w.thawed()
	}
}

// thawed waits until the agent has written what waited for the disk, because a kill may come next. An
// agent whose state is in memory writes nothing there.
func (w *world) thawed() {
	w.t.Helper()
	if w.alive && !w.volatile && w.harmed[process] == nil {
		w.await("journal that waits for nothing", func() (bool, string) {
			waiting, err := w.metric("kernosis_journal_waiting_entries")
			return err == nil && waiting == 0, fmt.Sprint(waiting, err)
		})
		w.losses.saved()
	}
}

func (w *world) healAll() {
	w.t.Helper()
	for _, p := range []part{process, manager, network, disk} {
		w.heal(p)
	}
}

// sometimes applies harm to a share of the requests.
func (w *world) sometimes(r *rand.Rand, share float64, harm func(http.ResponseWriter, *http.Request) bool) (heal func()) {
	var mu sync.Mutex // requests are concurrent
	w.proxy.Do(func(rw http.ResponseWriter, req *http.Request) bool {
		mu.Lock()
		hit := r.Float64() < share
		mu.Unlock()
		return hit && harm(rw, req)
	})
	return func() { w.proxy.Do(nil) }
}

// fill fills the disk.
func (w *world) fill() (heal func()) {
	w.t.Helper()
	path := filepath.Join(w.disk.Dir, "ballast")
	f, err := os.Create(path)
	w.must(err)
	defer f.Close()
	for size, at := int64(1<<20), int64(0); size >= 512; {
		if err := unix.Fallocate(int(f.Fd()), 0, at, size); err != nil {
			size /= 2
			continue
		}
		at += size
	}
	return func() { w.must(os.Remove(path)) }
}

// signal sends the agent a signal, if it runs.
func (w *world) signal(s os.Signal) {
	if w.alive {
		w.agent.Signal(s)
	}
}

// starve lets the agent run for 2 ms of each 100, as a limit of 20m CPU does.
func (w *world) starve() (heal func()) {
	pid, ended, end := w.agent.PID(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			_ = unix.Kill(pid, unix.SIGCONT)
			<-time.After(2 * time.Millisecond)
			select {
			case <-end:
				return
			default:
			}
			_ = unix.Kill(pid, unix.SIGSTOP)
			select {
			case <-end:
				_ = unix.Kill(pid, unix.SIGCONT)
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(end); <-ended }
}

// crashes returns acts that interrupt the agent, or take something away from it.
func crashes() []act {
	return []act{
		{"kill -9", 4, func(w *world, r *rand.Rand) { w.killAgent(r, nil) }},
		{"kill -9 before a request", 2, func(w *world, r *rand.Rand) {
			w.killAgent(r, func(kill func()) { w.atRequest(kill, false) })
		}},
		{"kill -9 behind a request", 2, func(w *world, r *rand.Rand) {
			w.killAgent(r, func(kill func()) { w.atRequest(kill, true) })
		}},
		{"kill -9 and a torn journal", 2, func(w *world, r *rand.Rand) {
			w.killAgent(r, nil, func() { w.tear(r) })
		}},
		{"kill -9 and a torn snapshot", 1, func(w *world, r *rand.Rand) {
			w.killAgent(r, nil, func() { w.tearSnapshot(r) })
		}},
		{"kill -9 of the controller", 2, func(w *world, r *rand.Rand) {
			w.controllers[r.IntN(len(w.controllers))].signal(syscall.SIGKILL)
		}},
		{"restart", 2, func(w *world, _ *rand.Rand) { w.restart() }},
		{"node is deleted", 1, func(w *world, _ *rand.Rand) { w.deleteNode() }},
		{"log is rotated", 2, func(w *world, r *rand.Rand) {
			w.must(os.Rename(w.log, fmt.Sprintf("%s.%d", w.log, r.Uint32())))
			w.write("")
		}},
	}
}

// atRequestFor is how long a kill waits for a request.
const atRequestFor = 2 * time.Second

// atRequest kills the agent at its next write to the API server: before the API server gets it, or
// after that but before the agent gets the answer. It returns after the kill, or when nothing was
// written for atRequestFor.
func (w *world) atRequest(kill func(), behind bool) {
	if w.harmed[network] != nil {
		return
	}
	var once sync.Once
	done := make(chan struct{})
	w.proxy.Do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			return false
		}
		once.Do(func() {
			defer close(done)
			if behind {
				defer func() { _ = recover() }() // the handler panics to cut the connection
				defer kill()
				w.proxy.LoseAnswer(r)
			}
			kill()
		})
		panic(http.ErrAbortHandler)
	})
	select {
	case <-done:
		w.note("  at a request")
	case <-time.After(atRequestFor):
	}
	w.proxy.Do(nil)
}

// killAgent kills the agent, at once or when at calls kill, and restarts it after a while, in which
// meanwhile may change its files.
func (w *world) killAgent(r *rand.Rand, at func(kill func()), meanwhile ...func()) {
	w.t.Helper()
	w.heal(process)
	if at != nil {
		at(func() { w.agent.Signal(syscall.SIGKILL) })
	}
	w.agent.Signal(syscall.SIGKILL)
	w.alive = false
	w.losses.forgets()
	w.losses.lags()
	w.volatile = false
	if w.frozen {
		w.heal(disk) // a thread that waits for the disk can't end
	}
	w.agent.Kill()
	for _, do := range meanwhile {
		do()
	}
	for range r.IntN(3) {
		w.kill()
	}
	w.hiccups(r.IntN(5))
	w.start()
}

// restart shuts the agent down cleanly and starts it again.
func (w *world) restart() {
	w.t.Helper()
	w.heal(process)
	w.heal(disk)                              // else it ends only when the harm to the disk does
	w.await("answer", func() (bool, string) { // an agent that has just been started does not handle SIGTERM yet
		_, err := w.get(w.t.Context(), "/metrics")
		return err == nil, fmt.Sprint(err)
	})
	w.sample()
	w.agent.Stop()
	w.alive = false
	if w.volatile {
		w.losses.forgets()
	} else {
		w.losses.saved()
	}
	w.start()
	w.agent.WaitSources(len(w.agent.Entries()))
}

// tear appends an incomplete line to the journal, as a power failure does.
func (w *world) tear(r *rand.Rand) {
	w.t.Helper()
	if w.harmed[disk] != nil {
		return
	}
	segments, err := filepath.Glob(filepath.Join(w.agent.State, "journal", "*"))
	w.must(err)
	if len(segments) == 0 {
		return
	}
	f, err := os.OpenFile(segments[len(segments)-1], os.O_APPEND|os.O_WRONLY, 0)
	w.must(err)
	text := make([]byte, 1+r.IntN(200))
	for i := range text {
		text[i] = byte(' ' + r.IntN(200)) // no newline: the line is truncated
	}
	_, err = f.Write(append([]byte(`{"seq":`), text...))
	w.must(err)
	w.must(f.Close())
}

// tearSnapshot truncates the engine's snapshot.
func (w *world) tearSnapshot(r *rand.Rand) {
	w.t.Helper()
	path := filepath.Join(w.agent.State, "engine.json")
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return // no snapshot was written yet
	}
	w.must(err)
	w.must(os.Truncate(path, r.Int64N(info.Size())))
}

// deleteNode deletes the Node and creates it again, as if kubelet registered again.
func (w *world) deleteNode() {
	w.t.Helper()
	if w.away {
		return
	}
	w.must(w.server.Client().CoreV1().Nodes().Delete(w.t.Context(), w.node, metav1.DeleteOptions{}))
	w.server.NodeNamed(w.t, w.node)
	w.repairs.label()
}
