package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/diagnose/why/local"
)

// Config configures where to find an agent.
type Config struct {
	Node string // name of this node; empty: unknown
	// Endpoint is the agent's HTTP endpoint; nil: none.
	Endpoint *Endpoint
	StateDir string
	Journal  string // folder of the journal
	// Reads bounds the reads of StateDir, including its journal.
	Reads *bounded.Calls
	// PID is the agent's process; 0: unknown.
	PID int
	// StateFile is the file in StateDir that a running agent saves regularly, and DeadAfter is
	// its maximum age while an agent runs.
	StateFile string
	DeadAfter time.Duration
	// Unread is what could not be read before.
	Unread []Unread
}

// ReadWithin is how long to wait for the state folder, whose disk may hang.
const ReadWithin = 2 * time.Second

// ReadFolder calls read and returns its results. If that takes longer than within, it returns a
// [bounded.ErrLate] that says that the folder does not answer. A long read calls step after each
// piece, which restarts the timeout. step returns an error once ctx has ended.
func ReadFolder[T any](ctx context.Context, calls *bounded.Calls, within time.Duration, dir string, read func(step func() error) (T, error)) (T, error) {
	v, err := bounded.DoSteps(calls, within, func(step func() error) (T, error) {
		return read(func() error { return cmp.Or(ctx.Err(), step()) })
	})
	if errors.Is(err, bounded.ErrLate) {
		err = hangsError{dir}
	}
	return v, err
}

type hangsError struct{ dir string }

func (e hangsError) Error() string { return e.dir + " does not answer: does its disk hang?" }

func (hangsError) Is(err error) bool { return err == bounded.ErrLate }

// Reader reads the state of an agent repeatedly.
type Reader struct {
	c       Config
	within  time.Duration // timeout of the state folder
	journal *local.Follower
	before  usage // usage at the previous read
}

// NewReader returns a Reader.
func NewReader(c Config) *Reader {
	r := &Reader{c: c, within: ReadWithin}
	r.open()
	return r
}

func (r *Reader) open() {
	r.journal = local.Follow(local.Config{
		Dir: r.c.Journal, Subject: why.Subject{Kind: why.KindNode, Name: r.c.Node}, Since: time.Minute,
	})
}

// reading is the result of one read.
type reading struct {
	State
	metrics families     // nil if they could not be read
	local   *local.State // nil if it could not be read
}

// Read returns the state now.
func (r *Reader) Read(ctx context.Context) *State {
	g := &reading{State: State{
		At: time.Now(), Node: display.Safe(r.c.Node, maxWord), Kernel: Kernel(),
		Problems: []Problem{}, Conditions: []problem.Condition{}, Sources: []Source{}, Degraded: []string{}, Losses: []Loss{}, Unread: []Unread{},
	}}
	g.Agent.PID, g.Agent.Running = r.c.PID, r.c.PID != 0
	for _, u := range r.c.Unread {
		g.unread(u.What, errors.New(u.Why))
	}
	r.ask(ctx, g)
	r.look(ctx, g)
	g.build()
	r.cost(g)
	g.Agent.Running = g.Agent.Running || !g.Agent.Saved.IsZero() && g.At.Sub(g.Agent.Saved) <= r.c.DeadAfter
	g.Outcome = g.outcome(g.metrics != nil || g.local != nil)
	return &g.State
}

func (g *reading) unread(what string, err error) {
	g.Unread = append(g.Unread, Unread{What: what, Why: display.Safe(err.Error(), maxWord)})
}

func (r *Reader) ask(ctx context.Context, g *reading) {
	e := r.c.Endpoint
	if e == nil {
		return
	}
	g.Agent.Endpoint = e.String()
	var err error
	if g.Agent.Health, err = e.health(ctx); err != nil {
		g.unread("endpoint "+e.String(), err)
		return
	}
	g.Agent.Running = true
	if g.Degraded, err = e.degraded(ctx); err != nil {
		g.unread("/readyz", err)
	}
	if g.metrics, err = e.metrics(ctx); err != nil {
		g.unread("metrics", err)
	}
}

func (r *Reader) look(ctx context.Context, g *reading) {
	type found struct {
		saved   time.Time
		journal local.State
	}
	journal, stateFile, at := r.journal, filepath.Join(r.c.StateDir, r.c.StateFile), g.At
	f, err := ReadFolder(ctx, r.c.Reads, r.within, r.c.StateDir, func(step func() error) (f found, err error) {
		if info, err := os.Stat(stateFile); err == nil {
			f.saved = info.ModTime()
		}
		f.journal, err = journal.Read(at, step)
		return f, err
	})
	st := f.journal
	g.Agent.Saved = f.saved
	stale := func(at time.Time) bool { return g.At.Sub(at) > r.c.DeadAfter }
	switch {
	case errors.Is(err, bounded.ErrLate):
		g.unread("state folder", err)
	case err == nil && g.Agent.Running && stale(g.Agent.Saved) && stale(st.Started):
		g.unread("journal", fmt.Errorf("the agent does not write to %s: its disk hangs, or it keeps its state elsewhere (--state-dir)", r.c.StateDir))
	case err == nil:
		g.local = &st
		g.Agent.Started = st.Started
		g.Agent.Journal = st.Read[0]
		for _, u := range st.Unread {
			g.unread(u.What, errors.New(u.Why))
		}
	case errors.Is(err, fs.ErrNotExist):
		g.unread("journal", fmt.Errorf("not found in %s (--state-dir)", r.c.Journal))
	default:
		g.unread("journal", err)
	}
	if err != nil {
		r.open() // start over: the follower's state is unusable, or a read still uses it
	}
}

// usage is the CPU time that a process had used at a time.
type usage struct {
	at  time.Time
	cpu float64
}

// cost adds what the agent uses: from its process if that is known, else from its metrics.
func (r *Reader) cost(g *reading) {
	if r.c.PID != 0 {
		c, started, err := CostOf(r.c.PID)
		if err != nil {
			g.unread("process", err)
		}
		g.Cost = c
		if !started.IsZero() {
			g.Agent.Started = started
		}
	}
	if g.Cost.RSSBytes == 0 {
		g.Cost = Cost{
			RSSBytes: uint64(g.metrics.value("process_resident_memory_bytes")), CPUSeconds: g.metrics.value("process_cpu_seconds_total"),
		}
	}
	if g.Cost.RSSBytes == 0 {
		return
	}
	from := usage{at: g.Agent.Started}
	if r.before.cpu > 0 && r.before.cpu <= g.Cost.CPUSeconds { // else the process has changed
		from = r.before
	}
	if over := g.At.Sub(from.at); !from.at.IsZero() && over > 0 {
		g.Cost.Over, g.Cost.CPUPercent = over, (g.Cost.CPUSeconds-from.cpu)/over.Seconds()*100
	}
	r.before = usage{at: g.At, cpu: g.Cost.CPUSeconds}
}

// CostOf returns the memory and CPU time of a process, and when it started; zero: unknown.
func CostOf(pid int) (c Cost, started time.Time, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return c, started, err
	}
	st, err := p.Stat()
	if err != nil {
		return c, started, err
	}
	if at, err := st.StartTime(); err == nil {
		started = seconds(at)
	}
	return Cost{RSSBytes: uint64(max(st.ResidentMemory(), 0)), CPUSeconds: st.CPUTime()}, started, nil
}

func seconds(s float64) time.Time {
	whole, part := math.Modf(s)
	return time.Unix(int64(whole), int64(part*1e9))
}

// Kernel returns the release of the running kernel.
func Kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return display.Safe(unix.ByteSliceToString(u.Release[:]), maxWord)
}
