package active

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernosis/kernosis/collector/cri"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/process"
)

const (
	// execGrace is how long the runtime may take to report that a command timed out.
	execGrace = 2 * time.Second
	// maxOutput is how much of a program's output is kept.
	maxOutput = 1 << 10
)

// Command runs a command in a container, as kubelet's exec probes do. container is the ID with
// the runtime's name ("containerd://8a1f…"). If the runtime can't run the command, Command
// returns an error, not a failure.
func (p *Prober) Command(ctx context.Context, container string, command []string, timeout time.Duration) (probe.Outcome, error) {
	_, id, ok := strings.Cut(container, "://")
	if !ok || id == "" {
		return probe.Outcome{}, fmt.Errorf("container ID %q: want RUNTIME://ID", display.Safe(container, 128))
	}
	within, cancel := context.WithTimeout(ctx, timeout+execGrace)
	defer cancel()
	began := time.Now()
	var got cri.Exec
	var socket string
	err := cri.Find(within, p.fs, func(at cri.Socket) (err error) {
		socket = at.Name
		got, err = cri.ExecSync(within, at, id, command, timeout)
		return err
	})
	took := time.Since(began)
	if ctx.Err() != nil {
		return probe.Outcome{}, ctx.Err()
	}
	if errors.Is(err, cri.ErrNotFound) {
		return probe.Outcome{}, err
	}
	e := execution{what: commandText(command), took: took, timeout: timeout, code: int(got.ExitCode), output: string(got.Stdout) + string(got.Stderr)}
	switch s := status.Convert(err); {
	case err == nil:
	case s.Code() == codes.DeadlineExceeded && took < timeout:
		return probe.Outcome{}, fmt.Errorf("exec in %s: %s", container, s.Message())
	case s.Code() == codes.DeadlineExceeded:
		e.late = true
	default:
		return probe.Outcome{}, fmt.Errorf("exec in container %s over %s: %s", id[:min(len(id), 12)], socket, display.Safe(s.Message(), maxCause))
	}
	return e.outcome(), nil
}

// Program runs a program on the node; runs tracks its earlier runs. If the program can't be
// started, Program returns an error, not a failure. An earlier run that can't be killed is a
// failure.
func (p *Prober) Program(ctx context.Context, runs *process.Runs, program process.Program) (probe.Outcome, error) {
	program.KeepMerged = maxOutput
	o := runs.Run(ctx, &program)
	if ctx.Err() != nil {
		return probe.Outcome{}, ctx.Err()
	}
	e := execution{
		what: commandText(append([]string{path.Base(program.Path)}, program.Args...)),
		took: o.Duration, timeout: program.Timeout, output: string(o.Merged),
	}
	switch {
	case errors.Is(o.Err, process.ErrStuck) && !o.Started:
		e.notRun = o.Err.Error()
	case errors.Is(o.Err, process.ErrStuck):
		e.late, e.stuck = true, true
	case errors.Is(o.Err, process.ErrTimeout):
		e.late = true
	case errors.Is(o.Err, process.ErrProcesses):
		e.killed = "it started too many processes"
	case o.Err != nil:
		return probe.Outcome{}, o.Err
	case o.State.Exited():
		e.code = o.State.ExitCode()
	default:
		e.killed = "it ended in another way"
		if w, ok := o.State.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			e.killed = "it was ended by " + unix.SignalName(w.Signal())
		}
	}
	return e.outcome(), nil
}

// execution describes how a program or command ended.
type execution struct {
	what          string
	took, timeout time.Duration
	code          int
	late, stuck   bool
	notRun        string // why it did not run; empty: it ran
	killed        string
	output        string
}

func (e *execution) outcome() probe.Outcome {
	d := event.ProbeOutcome{Feed: event.ProbeActive, Duration: event.Duration(e.took), Phase: "answer", Said: display.Safe(strings.TrimSpace(e.output), maxSaid)}
	switch {
	case e.notRun != "":
		d.Verdict, d.Cause = event.VerdictExecSlow, e.what+" was "+e.notRun
	case e.late:
		d.Verdict = event.VerdictExecSlow
		d.Cause = fmt.Sprintf("%s did not end within %s", e.what, display.Duration(e.timeout))
		if e.stuck {
			d.Cause += ", and can't be killed: it is in uninterruptible sleep"
		}
	case e.killed != "":
		d.Verdict, d.Cause = event.VerdictExecFailed, fmt.Sprintf("%s failed after %s: %s", e.what, display.Duration(e.took), e.killed)
	case e.code != 0:
		d.Verdict, d.Status = event.VerdictExecFailed, fmt.Sprintf("exit %d", e.code)
		d.Cause = fmt.Sprintf("%s ended with exit code %d after %s", e.what, e.code, display.Duration(e.took))
	default:
		d.Phase = ""
		return probe.Outcome{At: time.Now(), OK: true, Detail: d}
	}
	if said := firstLine(strings.TrimSpace(e.output)); said != "" {
		d.Cause += ": " + said
	}
	d.Cause = display.Safe(d.Cause, maxCause)
	return probe.Outcome{At: time.Now(), Detail: d}
}

// commandText returns a command line, shortened and escaped.
func commandText(command []string) string {
	const most = 80
	return display.Safe(strings.Join(command, " "), most)
}
