package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a fault's duration, count and memory.
const (
	MaxDuration = 10 * time.Minute
	MaxCount    = 1000
	MaxMemory   = 1 << 30 // a child process fills it: the machine itself must not run out of memory
)

// Env has the settings of a fault's run. The zero value of a field means the default. A duration, count
// or memory that the fault does not have is refused.
type Env struct {
	Out      io.Writer     // progress for people; nil for no output
	Duration time.Duration // how long a state lasts (hang, broken filesystem) before it is healed
	Count    int           // how often an event happens (kill, failed request, probe)
	Memory   uint64        // limit of the cgroup that runs out of memory, in bytes
	// Until, if not nil, keeps the fault beyond Duration and Count until it is closed. The run's time
	// limit stays.
	Until <-chan struct{}

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

	// Zero if the fault does not have the setting.
	DefaultDuration time.Duration
	DefaultCount    int
	DefaultMemory   uint64

	require func() error // what it needs besides root
	do      func(context.Context, *run) error
}

type run struct {
	env Env
	Result
	want  int           // number of events: Env.Count or the default
	limit time.Duration // time limit of the whole run; after it, guards undo the records
}

// over reports whether Until allows the fault to end.
func (r *run) over() bool {
	if r.env.Until == nil {
		return true
	}
	select {
	case <-r.env.Until:
		return true
	default:
		return false
	}
}

// last waits until the fault may end.
func (r *run) last(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.env.Duration):
	}
	if r.env.Until == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.env.Until:
		return nil
	}
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
	return slices.Concat(taskFaults(), diskFaults(), probeFaults())
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

// Check returns nil if this machine can do the fault, or else a *Refused with the reason.
func (f *Fault) Check() error {
	if os.Geteuid() != 0 { // all faults make cgroups, mounts or namespaces
		return &Refused{Fault: f.Name, Reason: "needs root"}
	}
	return f.named("check", f.require())
}

// named returns err with the fault's name and what was done.
func (f *Fault) named(did string, err error) error {
	if refused := (*Refused)(nil); errors.As(err, &refused) {
		return &Refused{Fault: f.Name, Reason: refused.Reason}
	} else if err != nil {
		return fmt.Errorf("%s %s: %w", did, f.Name, err)
	}
	return nil
}

// Run provokes the fault, heals it, and removes it, even if ctx is done early. On an error the result
// shows what happened until then.
func (f *Fault) Run(ctx context.Context, env Env) (Result, error) {
	r := &run{env: env, Result: Result{Fault: f.Name}, want: cmp.Or(env.Count, f.DefaultCount)}
	r.env.Duration = cmp.Or(env.Duration, f.DefaultDuration)
	r.env.Memory = cmp.Or(env.Memory, f.DefaultMemory)
	if err := f.CheckEnv(&env); err != nil {
		return r.Result, err
	}
	if r.env.Out != nil {
		fmt.Fprintf(r.env.Out, "%s: %s\n", f.Name, f.Does)
	}
	if err := f.Check(); err != nil {
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
	err = f.do(ctx, r)
	r.Ended = time.Now()
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		return r.Result, f.named("inject", err)
	}
	r.say("healed and removed after %s", r.Ended.Sub(r.Started).Round(time.Millisecond))
	return r.Result, nil
}

// CheckEnv returns an error if env has a setting that the fault does not have, or that is out of bounds.
func (f *Fault) CheckEnv(env *Env) error {
	for _, s := range []struct {
		name string
		set  bool
		has  func(*Fault) bool
	}{
		{"duration", env.Duration != 0, func(f *Fault) bool { return f.DefaultDuration > 0 }},
		{"count", env.Count != 0, func(f *Fault) bool { return f.DefaultCount > 0 }},
		{"memory", env.Memory != 0, func(f *Fault) bool { return f.DefaultMemory > 0 }},
	} {
		if !s.set || s.has(f) {
			continue
		}
		var others []string
		for _, other := range Faults() {
			if s.has(&other) {
				others = append(others, other.Name)
			}
		}
		return fmt.Errorf("inject %s: the fault has no %s; these have: %s", f.Name, s.name, strings.Join(others, ", "))
	}
	switch {
	case env.Duration < 0 || env.Duration > MaxDuration:
		return fmt.Errorf("inject %s: duration %s, want 0 to %s", f.Name, env.Duration, MaxDuration)
	case env.Count < 0 || env.Count > MaxCount:
		return fmt.Errorf("inject %s: count %d, want 0 to %d", f.Name, env.Count, MaxCount)
	case env.Memory > MaxMemory:
		return fmt.Errorf("inject %s: memory %d, want at most %d bytes (1 GiB)", f.Name, env.Memory, MaxMemory)
	}
	return nil
}

// ending removes a fault whose start, which what names, failed with err.
func ending(err *error, what string, stop func() error) {
	if *err != nil {
		*err = errors.Join(fmt.Errorf("%s: %w", what, *err), stop())
	}
}

// closing calls stop, which removes a fault, and joins its error to the run's error.
func closing(err *error, r *run, stop func() error) {
	if e := stop(); e != nil {
		r.note("not everything could be removed: %v", e)
		*err = errors.Join(*err, e)
	}
}

// Refused is the error if this machine can't do a fault. Nothing was done.
type Refused struct {
	Fault  string // "" if a part doesn't know it
	Reason string
}

func (r *Refused) Error() string {
	if r.Fault == "" {
		return "refused: " + r.Reason
	}
	return "refused " + r.Fault + ": " + r.Reason
}

func requireUserfaultfd() error {
	fd, err := openUserfaultfd()
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.ENOSYS):
		return &Refused{Reason: "this kernel has no userfaultfd"}
	case errors.Is(err, unix.EPERM):
		return &Refused{Reason: "userfaultfd is not permitted (needs CAP_SYS_PTRACE, and no seccomp filter against it)"}
	}
	return err
}

func requireExt4Image() error {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return &Refused{Reason: "mkfs.ext4 is missing (package e2fsprogs)"}
	}
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return &Refused{Reason: fmt.Sprintf("no loop devices here: %v", err)}
	}
	return f.Close()
}

func requireNetns() error {
	if _, err := os.Stat("/proc/self/ns/net"); err != nil {
		return &Refused{Reason: "this kernel has no network namespaces"}
	}
	return nil
}
