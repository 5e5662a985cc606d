package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/process"
)

// Status is the result of a check. The names are API: events and metrics contain them.
type Status string

// The statuses, for exit code 0, exit code 1 and any other.
const (
	OK      Status = "ok"
	Problem Status = "problem"
	Unknown Status = "unknown"
)

// Result is the outcome of one run.
type Result struct {
	Check  string // Check.Name
	Status Status
	// Message is the program's standard output: one line, trimmed, safe to display, at most
	// Config.MaxOutputLength bytes. Without output, it is the reason of the status Unknown.
	Message string
	// Duration is how long the run took.
	Duration time.Duration
	// Err is why the program has no result: it could not be started (fs.ErrNotExist …), or
	// [process.ErrTimeout] and the like. nil if it has one.
	Err error
	// Truncated is how many bytes of the output were omitted from Message.
	Truncated uint64
	// Stderr is the end of its standard error, in the same form as Message.
	Stderr string
}

// result converts an outcome to a Result. Don't call it for runs that were aborted because the
// agent stops.
func (c *Check) result(o *process.Outcome, limit int) Result {
	limit = min(limit, maxOutput)
	r := Result{Check: c.Name, Status: Unknown, Duration: o.Duration, Err: o.Err}
	r.Stderr, _ = message(o.Stderr, maxStderr)
	var cut uint64
	r.Message, cut = message(o.Stdout, limit)
	r.Truncated = o.Dropped + cut
	switch {
	case o.Started && (errors.Is(o.Err, process.ErrTimeout) || errors.Is(o.Err, process.ErrStuck)):
		// The wording of node-problem-detector, which alerts may look for.
		state := "running"
		if o.State != nil {
			state = o.State.String()
		}
		r.explain(fmt.Sprintf("Timeout when running plugin %q: state - %s. output - %q", c.Path, state, r.Message), limit)
	case errors.Is(o.Err, process.ErrProcesses):
		r.explain("killed: it has started too many processes", limit)
	case o.Err != nil:
		r.explain(o.Err.Error(), limit) // it contains what was tried
	case o.State.Exited() && o.State.ExitCode() == 0:
		r.Status = OK
	case o.State.Exited() && o.State.ExitCode() == 1:
		r.Status = Problem
	case r.Message == "":
		r.explain(ending(o), limit)
	}
	return r
}

// explain makes text the message, cut at limit.
func (r *Result) explain(text string, limit int) { r.Message, _ = message([]byte(text), limit) }

// ending describes how a program ended that printed nothing.
func ending(o *process.Outcome) string {
	if w, ok := o.State.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return "ended by " + unix.SignalName(w.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", o.State.ExitCode())
}

// maxStderr: a line or two for the log.
const maxStderr = 512

// message converts output to one line: it trims surrounding white space, replaces line breaks and
// tabs by one space, and escapes other unprintable characters, including invalid UTF-8. It cuts
// the line at limit bytes; cut is how many bytes were removed.
func message(output []byte, limit int) (text string, cut uint64) {
	line := make([]byte, 0, len(output))
	breaks := false
	for _, c := range bytes.TrimSpace(output) {
		if c >= '\t' && c <= '\r' {
			breaks = true
			continue
		}
		if breaks {
			line, breaks = append(line, ' '), false
		}
		line = append(line, c)
	}
	text = display.Safe(string(line), len(line))
	if len(text) <= limit {
		return text, 0
	}
	short := display.Prefix(text, limit)
	return short, uint64(len(text) - len(short))
}
