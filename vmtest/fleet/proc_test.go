package fleet

import (
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// usage is the resource usage of a process.
type usage struct {
	CPU time.Duration
	RSS int64 // in bytes; the maximum of a phase
}

// program is one or several processes that are measured together.
type program string

const (
	programAPI    program = "kube-apiserver"
	programEtcd   program = "etcd"
	programLeader program = "controller"
	programSpare  program = "spare controller"
	programAgents program = "agents"
)

// meter samples processes each second. It keeps the usage of those that have ended.
type meter struct {
	mu    sync.Mutex
	pids  map[program][]int
	ended map[program]time.Duration
	cpu   map[int]time.Duration
	peak  map[program]int64
}

func newMeter() *meter {
	return &meter{pids: map[program][]int{}, ended: map[program]time.Duration{}, cpu: map[int]time.Duration{}, peak: map[program]int64{}}
}

// set sets the processes of a program from now on.
func (m *meter) set(p program, pids ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pid := range m.pids[p] {
		m.ended[p] += m.cpu[pid]
		delete(m.cpu, pid)
	}
	m.pids[p] = pids
	for _, pid := range pids { // what they used under another name stays counted there
		if u, err := look(pid); err == nil {
			m.cpu[pid] = u.CPU
			m.ended[p] -= u.CPU
		}
	}
}

func look(pid int) (usage, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, err
	}
	s, err := p.Stat()
	return usage{CPU: time.Duration(s.CPUTime() * float64(time.Second)), RSS: int64(s.ResidentMemory())}, err
}

func (m *meter) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, pids := range m.pids {
		var rss int64
		for _, pid := range pids {
			if u, err := look(pid); err == nil {
				m.cpu[pid] = max(m.cpu[pid], u.CPU)
				rss += u.RSS
			}
		}
		m.peak[p] = max(m.peak[p], rss)
	}
}

// next returns the usage so far, with the peaks since the last call.
func (m *meter) next() map[program]usage {
	m.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[program]usage{}
	for p, pids := range m.pids {
		u := usage{CPU: m.ended[p], RSS: m.peak[p]}
		for _, pid := range pids {
			u.CPU += m.cpu[pid]
		}
		all[p] = u
	}
	clear(m.peak)
	return all
}

// keepFree is the memory to leave to other processes, in bytes; a run is aborted before it is used.
const keepFree = 1 << 30

// available returns the machine's available memory, in bytes.
func available() (uint64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	m, err := proc.Meminfo()
	if err != nil {
		return 0, err
	}
	return *m.MemAvailableBytes, nil
}
