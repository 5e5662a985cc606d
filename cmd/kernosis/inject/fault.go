package inject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// The most a fault may be asked for.
const (
	MaxDuration = 10 * time.Minute
	MaxCount    = 1000
)

// Env is what a run of a fault depends on. The zero value of a field asks for
// the default.
type Env struct {
	Out      io.Writer     // what happens, for a person; nil for silence
	Duration time.Duration // how long a state lasts (hang, broken filesystem) before it is healed
	Count    int           // how often an event happens (kill, failed request, probe)
	Memory   uint64        // of the cgroup that runs out of it, in bytes

	// TargetsDir is where a running Kernosis looks for probe targets.
	TargetsDir string
	// WaitTarget returns once a running Kernosis watches the target; an error
	// says that none does, and the fault goes on. May be nil. It must be bounded.
	WaitTarget func(ctx context.Context, netns uint32, addr netip.AddrPort) error

	StateDir string // of the records, images and mount points
	DryRun   bool   // say what would be done and check that it can be, no more
}

// Result is what a fault has done.
type Result struct {
	Fault   string
	Subject string // who suffered: process, device and mount point, or target
	Started time.Time
	Ended   time.Time // healed and cleaned up
	Count   int       // kills, hangs, failed requests or failed probes; each one seen to happen
	Notes   []string
}

// Fault is one of the faults `kernosis inject` offers.
type Fault struct {
	Name    string
	Summary string // a few words, for a list
	Does    string // what it will do, printed first

	DefaultDuration time.Duration // 0: has none
	DefaultCount    int

	// Check returns nil where this machine can do the fault, a *Refused with the
	// reason where not.
	Check func() error
	// Run provokes the fault, heals it, and removes it, also when ctx is done
	// early. The result holds what happened up to an error.
	Run func(ctx context.Context, env Env) (Result, error)
}

// spec is a fault before its run is wrapped with what all share.
type spec struct {
	Fault
	requires []func() error
	do       func(context.Context, *run) error
}

// run is one run of a fault.
type run struct {
	env Env
	Result
	want  int           // how often, Env.Count or the default
	limit time.Duration // for everything; records are undone by their guard then
}

// say prints what happens, for a person.
func (r *run) say(format string, args ...any) {
	if r.env.Out != nil {
		fmt.Fprintf(r.env.Out, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

func (r *run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	r.say(format, args...)
}

// Faults returns every fault, in the order of a list for people.
func Faults() []Fault {
	var faults []Fault
	for _, s := range append(append(taskFaults(), diskFaults()...), probeFaults()...) {
		f := s.Fault
		f.Check = s.check
		f.Run = s.run
		faults = append(faults, f)
	}
	return faults
}

// Find returns the fault of that name.
func Find(name string) (Fault, bool) {
	for _, f := range Faults() {
		if f.Name == name {
			return f, true
		}
	}
	return Fault{}, false
}

func (s spec) check() error {
	for _, require := range append([]func() error{requireRoot}, s.requires...) {
		err := require()
		if refused := (*Refused)(nil); errors.As(err, &refused) {
			return &Refused{Fault: s.Name, Reason: refused.Reason}
		} else if err != nil {
			return fmt.Errorf("check %s: %w", s.Name, err)
		}
	}
	return nil
}

func (s spec) run(ctx context.Context, env Env) (Result, error) {
	r := &run{env: env, Result: Result{Fault: s.Name}}
	if r.env.Duration == 0 {
		r.env.Duration = s.DefaultDuration
	}
	if r.want = env.Count; r.want == 0 {
		r.want = s.DefaultCount
	}
	if r.env.Out != nil {
		fmt.Fprintf(r.env.Out, "%s: %s\n", s.Name, s.Does)
	}
	switch {
	case r.env.Duration < 0 || r.env.Duration > MaxDuration:
		return r.Result, fmt.Errorf("inject %s: duration %s is not within 0 and %s", s.Name, r.env.Duration, MaxDuration)
	case r.want < 0 || r.want > MaxCount:
		return r.Result, fmt.Errorf("inject %s: count %d is not within 0 and %d", s.Name, r.want, MaxCount)
	}
	if err := s.check(); err != nil {
		return r.Result, err
	}
	if r.env.DryRun {
		return r.Result, nil
	}
	removed, err := Cleanup(r.env.StateDir)
	for _, name := range removed {
		r.note("removed what a dead injector left behind (%s)", name)
	}
	if err != nil {
		r.note("could not remove what a dead injector left behind: %v", err)
	}
	// A probe or kill takes about a second at most; a minute is for a loaded machine.
	r.limit = r.env.Duration + time.Duration(r.want)*2*time.Second + time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, r.limit, fmt.Errorf("took longer than %s", r.limit))
	defer cancel()
	r.Started = time.Now()
	err = s.do(ctx, r)
	r.Ended = time.Now()
	if refused := (*Refused)(nil); errors.As(err, &refused) { // found out on the way
		return r.Result, &Refused{Fault: s.Name, Reason: refused.Reason}
	} else if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return r.Result, fmt.Errorf("inject %s: %w", s.Name, err)
	}
	r.say("healed and removed after %s", r.Ended.Sub(r.Started).Round(time.Millisecond))
	return r.Result, nil
}

// closing joins the error of removing a fault to the one of its run.
func closing(err *error, r *run, stop func() error) {
	if e := stop(); e != nil {
		r.note("not everything could be removed: %v", e)
		*err = errors.Join(*err, e)
	}
}
