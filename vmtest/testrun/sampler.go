package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// interval is how often processes are sampled. A process that lives shorter is missed; its time
// counts for its parent only after the parent has waited for it. Sampling five times a second took
// 6 % of a CPU.
const interval = time.Second

// userHz is the unit of CPU time in /proc (USER_HZ, 100 on all of Go's architectures).
const userHz = 100

// sample is the CPU time of one package's processes in an interval.
type sample struct {
	at   time.Time // end of the interval
	took time.Duration
	cpu  map[string]time.Duration // by program
}

type sampler struct {
	parent  int // PID of the go command
	all     []goPackage
	done    chan struct{}
	ended   chan struct{}
	known   map[process]member
	samples map[string][]sample
}

// process identifies a process, even if its PID is reused.
type process struct {
	pid   int
	start string
}

type member struct {
	pkg string
	cpu time.Duration
}

func startSampler(parent int, all []goPackage) *sampler {
	s := &sampler{
		parent: parent, all: all, done: make(chan struct{}), ended: make(chan struct{}),
		known: map[process]member{}, samples: map[string][]sample{},
	}
	go s.run()
	return s
}

func (s *sampler) stop() map[string][]sample {
	close(s.done)
	<-s.ended
	return s.samples
}

func (s *sampler) run() {
	defer close(s.ended)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
			now := time.Now()
			s.look(now, now.Sub(last))
			last = now
		}
	}
}

// stat is parsed from /proc/PID/stat (proc(5)).
type stat struct {
	process
	parent int
	name   string
	cpu    time.Duration // its own, without its children's
}

func readStat(pid int) (stat, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	text := string(raw)
	opening, closing := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if opening < 0 || closing < opening {
		return stat{}, false
	}
	f := strings.Fields(text[closing+1:])
	if len(f) < 20 {
		return stat{}, false
	}
	parent, _ := strconv.Atoi(f[1])
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return stat{
		process: process{pid, f[19]}, parent: parent, name: text[opening+1 : closing],
		cpu: time.Duration(user+system) * time.Second / userHz,
	}, true
}

// look records the CPU time of each package's processes since the last call.
func (s *sampler) look(now time.Time, since time.Duration) {
	folders, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	all := map[int]stat{}
	for _, d := range folders {
		if pid, err := strconv.Atoi(d.Name()); err == nil {
			if st, ok := readStat(pid); ok {
				all[pid] = st
			}
		}
	}
	members := map[process]member{}
	next := map[string]sample{}
	for _, st := range all {
		pkg := s.packageOf(st, all)
		if pkg == "" {
			continue
		}
		members[st.process] = member{pkg, st.cpu}
		if next[pkg].cpu == nil {
			next[pkg] = sample{at: now, took: since, cpu: map[string]time.Duration{}}
		}
		if spent := st.cpu - s.known[st.process].cpu; spent > 0 {
			next[pkg].cpu[st.name] += spent
		}
	}
	s.known = members
	for pkg, one := range next {
		s.samples[pkg] = append(s.samples[pkg], one)
	}
}

// packageOf returns the package of the test binary that a process runs or descends from. A process
// whose parent has ended stays with its package.
func (s *sampler) packageOf(st stat, all map[int]stat) string {
	if m, ok := s.known[st.process]; ok {
		return m.pkg
	}
	for at, steps := st, 0; steps < 64; steps++ {
		if at.parent == s.parent {
			return s.packageOfBinary(at.pid)
		}
		next, ok := all[at.parent]
		if !ok {
			return ""
		}
		at = next
	}
	return ""
}

// packageOfBinary returns the package whose folder a test binary was started in. It returns "" for
// other children of go test: compilers, linkers, vet.
func (s *sampler) packageOfBinary(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(line), ".test\x00-test.") {
		return ""
	}
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if i := slices.IndexFunc(s.all, func(p goPackage) bool { return p.Dir == dir }); i >= 0 {
		return s.all[i].ImportPath
	}
	return ""
}

// during sums the CPU time of samples, and names the programs that used most of it.
func during(samples []sample, began, ended time.Time) (total time.Duration, most string) {
	programs := map[string]time.Duration{}
	for _, one := range samples {
		if one.at.Before(began) || one.at.Add(-one.took).After(ended) {
			continue
		}
		for name, spent := range one.cpu {
			programs[name] += spent
			total += spent
		}
	}
	names := slices.SortedFunc(maps.Keys(programs), func(a, b string) int { return cmp.Compare(programs[b], programs[a]) })
	var parts []string
	for _, name := range names[:min(3, len(names))] {
		if spent := programs[name]; spent >= 100*time.Millisecond {
			parts = append(parts, fmt.Sprintf("%s %.1f", name, spent.Seconds()))
		}
	}
	return total, strings.Join(parts, ", ")
}
