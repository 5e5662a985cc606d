package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// interval is how often processes are looked at. What lives for less is missed; its time
// is in its parent's only once that has waited for it. Five times a second took 6 % of a CPU.
const interval = time.Second

// userHz is what /proc counts CPU time in (USER_HZ, 100 on all architectures of Go).
const userHz = 100

// sample is what the processes of one package did in an interval.
type sample struct {
	at   time.Time // its end
	took time.Duration
	cpu  map[string]time.Duration // by program
}

// sampler looks at the processes of running test binaries.
type sampler struct {
	parent  int // the go command
	done    chan struct{}
	ended   chan struct{}
	known   map[process]member
	samples map[string][]sample
}

// process is one, also after its number has been used again.
type process struct {
	pid   int
	start string
}

// member is a process of a package.
type member struct {
	pkg string
	cpu time.Duration
}

func startSampler(parent int) *sampler {
	s := &sampler{
		parent: parent, done: make(chan struct{}), ended: make(chan struct{}),
		known: map[process]member{}, samples: map[string][]sample{},
	}
	go s.run()
	return s
}

// stop returns the samples by package.
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

// stat is of /proc/PID/stat (proc(5)).
type stat struct {
	process
	parent int
	name   string
	cpu    time.Duration // its own, without that of children
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

// look notes what each package's processes have done since the last look.
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

// packageOf returns the package of the test binary that a process is, or descends from.
// One whose parent has ended stays with its package.
func (s *sampler) packageOf(st stat, all map[int]stat) string {
	if m, ok := s.known[st.process]; ok {
		return m.pkg
	}
	for at, steps := st, 0; steps < 64; steps++ {
		if at.parent == s.parent {
			return packageOfBinary(at.pid)
		}
		next, ok := all[at.parent]
		if !ok {
			return ""
		}
		at = next
	}
	return ""
}

// packageOfBinary returns the package whose folder a test binary was started in, and
// nothing for other children of go test: compilers, linkers, vet.
func packageOfBinary(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(line), ".test\x00-test.") {
		return ""
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return ""
	}
	root := dir
	for {
		if text, err := os.ReadFile(filepath.Join(root, "go.mod")); err == nil {
			first, _, _ := strings.Cut(string(text), "\n")
			rel, err := filepath.Rel(root, dir)
			if err != nil {
				return ""
			}
			return filepath.ToSlash(filepath.Join(strings.TrimSpace(strings.TrimPrefix(first, "module")), rel))
		}
		if root == filepath.Dir(root) {
			return ""
		}
		root = filepath.Dir(root)
	}
}

// during adds up the CPU time of samples, and names the programs that took most of it.
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
