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
			w.blocked = true
			thaw := w.disk.Freeze()
			return func() { w.blocked = false; thaw() }
		}},
		{"disk is slow", disk, 2, func(w *world, _ *rand.Rand) func() {
			w.blocked = true
			release := w.confine(slowWrites(w.disk.Name), w.agent.PID())
			return func() { w.blocked = false; release() }
		}},
		{"disk fails", disk, 2, func(w *world, _ *rand.Rand) func() {
			w.disk.Fail()
			return func() { w.replaceDisk() }
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
		{"agent has 10m of CPU", process, 2, func(w *world, _ *rand.Rand) func() { return w.confine(tenMillis, w.agent.PID()) }},
		{"controller is stopped", manager, 2, func(w *world, r *rand.Rand) func() {
			c := w.controllers[r.IntN(len(w.controllers))]
			c.signal(syscall.SIGSTOP)
			return func() { c.signal(syscall.SIGCONT) }
		}},
		{"controllers have 10m of CPU", manager, 2, func(w *world, _ *rand.Rand) func() {
			return w.confine(tenMillis, w.controllers[0].pid(), w.controllers[1].pid())
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
	blocked := p == disk && w.blocked
	delete(w.harmed, p)
	heal()
	switch p {
	case process:
		w.losses.lags()
	case disk:
		if !w.volatile {
			w.losses.accepts()
		}
	}
	if blocked {
		w.thawed()
	}
}

// thawed waits until the agent has written what waited for the disk, because a kill may come next. An
// agent whose state is in memory writes nothing there.
func (w *world) thawed() {
	w.t.Helper()
	if w.alive && !w.volatile && w.harmed[process] == nil && !w.t.Failed() {
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

// replaceDisk mounts a disk that has failed anew, as an administrator does, and restarts the agent, which had to
// keep its state in memory.
func (w *world) replaceDisk() {
	w.t.Helper()
	w.heal(process)
	if w.alive {
		w.endAgent()
	}
	w.disk.Renew()
	w.start()
}

// signal sends the agent a signal, if it runs.
func (w *world) signal(s os.Signal) {
	if w.alive {
		w.agent.Signal(s)
	}
}
