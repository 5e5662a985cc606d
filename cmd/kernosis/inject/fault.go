package inject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Limits of a fault's duration and count.
const (
	MaxDuration = 10 * time.Minute
	MaxCount    = 1000
)

// Env has the settings of a fault's run. The zero value of a field means the default.
type Env struct {
	Out      io.Writer     // progress for people; nil for no output
	Duration time.Duration // how long a state lasts (hang, broken filesystem) before it is healed
	Count    int           // how often an event happens (kill, failed request, probe)
	Memory   uint64        // limit of the cgroup that runs out of memory, in bytes

	// TargetsDir is where a running Kernosis looks for probe targets.
	TargetsDir string
	// WaitTarget returns once a running Kernosis watches the target. An error
	// means that none does; the fault continues anyway. It must have a timeout. May be nil.
	WaitTarget func(ctx context.Context, netns uint32, addr netip.AddrPort) error

	StateDir string // folder of the records, images and mount points
	DryRun   bool   // only say what would be done, and check that it can be
}

// Result is the outcome of a fault.
type Result struct {
	Fault   string
	Subject string // what was affected: process, device and mount point, or target
	Started time.Time
	Ended   time.Time // healed and cleaned up
	Count   int       // kills, hangs, failed requests or failed probes; each one verified
	Notes   []string
}

// Fault is one of the faults `kernosis inject` offers.
type Fault struct {
	Name    string
	Summary string // a few words, for a list
	Does    string // what it will do, printed first

	DefaultDuration time.Duration // 0: the fault has no duration
	DefaultCount    int

	// Check returns nil if this machine can do the fault, or else a *Refused with the
	// reason.
	Check func() error
	// Run provokes the fault, heals it, and removes it, also when ctx is done
	// early. On an error the result has what happened until then.
	Run func(ctx context.Context, env Env) (Result, error)
}

// spec is a fault before its run is wrapped with the steps that all faults share.
type spec struct {
	Fault
	requires []func() error
	do       func(context.Context, *run) error
}

// run is one run of a fault.
type run struct {
	env Env
	Result
	want  int           // number of events: Env.Count or the default
	limit time.Duration // time limit of the whole run; after it, guards undo the records
}

// say prints progress for people.
func (r *run) say(format string, args ...any) {
	if r.env.Out != nil {
		fmt.Fprintf(r.env.Out, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

func (r *run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	r.say(format, args...)
}

// Faults returns every fault, in the order in which lists show them.
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
		return r.Result, fmt.Errorf("inject %s: duration %s, want 0 to %s", s.Name, r.env.Duration, MaxDuration)
	case r.want < 0 || r.want > MaxCount:
		return r.Result, fmt.Errorf("inject %s: count %d, want 0 to %d", s.Name, r.want, MaxCount)
	}
	if err := s.check(); err != nil {
		return r.Result, err
	}
	if r.env.DryRun {
		return r.Result, nil
	}
	removed, err := Cleanup(r.env.StateDir)
	for _, name := range removed {
		r.note("cleaned up after an interrupted inject (%s)", name)
	}
	if err != nil {
		r.note("can't clean up after an interrupted inject: %v", err)
	}
	// A probe or kill takes about a second at most; a minute is for a loaded machine.
	r.limit = r.env.Duration + time.Duration(r.want)*2*time.Second + time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, r.limit, fmt.Errorf("took longer than %s", r.limit))
	defer cancel()
	r.Started = time.Now()
	err = s.do(ctx, r)
	r.Ended = time.Now()
	if refused := (*Refused)(nil); errors.As(err, &refused) { // detected during the run
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

// closing calls stop, which removes a fault, and joins its error to the run's error.
func closing(err *error, r *run, stop func() error) {
	if e := stop(); e != nil {
		r.note("not everything could be removed: %v", e)
		*err = errors.Join(*err, e)
	}
}
