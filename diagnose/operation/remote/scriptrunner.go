package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
)

const (
	shell     = "/bin/sh"
	maxScript = 256 << 10
	maxArgs   = 64
	// maxStderr is how much of the end of the standard error an error quotes.
	maxStderr = 512
)

// CheckScript returns an error with all that is wrong with a script, without running it.
func CheckScript(p *v1alpha1.ScriptRunner) error {
	var wrong []string
	switch {
	case strings.TrimSpace(p.Script) == "":
		wrong = append(wrong, "script is empty")
	case len(p.Script) > maxScript:
		wrong = append(wrong, fmt.Sprintf("script has %d bytes, at most %d", len(p.Script), maxScript))
	case strings.IndexByte(p.Script, 0) >= 0:
		wrong = append(wrong, "script contains a NUL")
	}
	if len(p.ArgKeys) > maxArgs {
		wrong = append(wrong, fmt.Sprintf("%d argKeys, at most %d", len(p.ArgKeys), maxArgs))
	}
	if p.OperationResultKey != "" {
		if problem := operation.KeyProblem(keyOf(p, "output")); problem != "" {
			wrong = append(wrong, "operationResultKey: "+problem)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("scriptRunner: %s", strings.Join(wrong, "; "))
	}
	return nil
}

func keyOf(p *v1alpha1.ScriptRunner, what string) string {
	return "operation." + p.OperationResultKey + "." + what
}

// argsOf returns the values of the arguments.
func argsOf(p *v1alpha1.ScriptRunner, values operation.Values) ([]string, error) {
	args := make([]string, 0, len(p.ArgKeys))
	var wrong []string
	for _, key := range p.ArgKeys {
		value, ok := values[key]
		switch {
		case !ok:
			wrong = append(wrong, operation.Quoted(key)+" is neither a parameter nor a result of a dependence")
		case strings.IndexByte(value, 0) >= 0:
			wrong = append(wrong, operation.Quoted(key)+" contains a NUL")
		}
		args = append(args, value)
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("scriptRunner: argument %s", strings.Join(wrong, "; "))
	}
	return args, nil
}

// Run runs a script until it or ctx ends; then none of its processes is left. Its arguments are values
// of [Call.Parameters]. If it has a result key, its results are the output of both streams, and "" or the
// reason why it failed. (The output is in the order of reading, which may differ slightly from the order
// of writing.)
//
// If it fails, Run returns an error together with the results: an [operation.OutcomeUnknown] if it was
// killed. If the output is too long, the results are cut, and the artifact output.txt has it.
func (s *Scripts) Run(ctx context.Context, p *v1alpha1.ScriptRunner, call *operation.Call) (operation.Output, error) {
	if s.reason != nil {
		return operation.Output{}, s.reason
	}
	if err := CheckScript(p); err != nil {
		return operation.Output{}, err
	}
	args, err := argsOf(p, call.Parameters)
	if err != nil {
		return operation.Output{}, err
	}
	o, err := s.run(ctx, p.Script, args)
	if err != nil {
		return operation.Output{}, fmt.Errorf("script: %w", err)
	}
	failure := scriptFailure(ctx, &o)
	out := operation.Output{}
	if p.OperationResultKey != "" {
		out.Results = map[string]string{keyOf(p, "output"): display.SafeLines(string(o.Merged)), keyOf(p, "error"): ""}
		if failure != nil {
			out.Results[keyOf(p, "error")] = failure.Error()
		}
		out.Bound()
	}
	out.Truncated = out.Truncated || o.MergedDropped > 0
	if o.MergedDropped > 0 {
		o.Merged = fmt.Appendf(o.Merged, "\n[kernosis: %d more bytes omitted]\n", o.MergedDropped)
	}
	if out.Truncated {
		if err := writeArtifact(call, "output.txt", o.Merged); err != nil {
			if failure == nil {
				return out, &operation.OutcomeUnknown{Err: err}
			}
			return out, errors.Join(failure, err)
		}
	}
	return out, failure
}

// run runs the shell. Per-process limits can only be set from within: a first shell sets them, and
// is then replaced by the shell that runs the script.
func (s *Scripts) run(ctx context.Context, text string, args []string) (process.Outcome, error) {
	script, err := sealed(text)
	if err != nil {
		return process.Outcome{}, err
	}
	defer script.Close()
	group, err := s.groups.Make(strconv.FormatUint(s.serial.Add(1), 10))
	if err != nil {
		return process.Outcome{}, err
	}
	defer group.Close()
	const limited = `ulimit -c 0 && ulimit -d "$1" && shift && exec "$0" "$@"`
	program := process.Program{
		Path:  shell,
		Args:  append([]string{"-c", limited, shell, strconv.FormatInt(s.memory()>>10, 10), "/proc/self/fd/3"}, args...),
		Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"},
		Dir:   "/",
		Files: []*os.File{script},
		Keep:  1, KeepMerged: s.bounds.output,
		User: s.user, Confined: true, Group: group, Strict: true,
	}
	o := program.Run(ctx)
	if !o.Started {
		return o, o.Err
	}
	return o, nil
}

// memory returns the memory limit of each process, which can't exceed the agent's own.
func (s *Scripts) memory() int64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &own); err == nil && own.Max < uint64(s.bounds.Memory) {
		return int64(own.Max)
	}
	return s.bounds.Memory
}

// scriptFailure returns why a script failed; nil if it succeeded.
func scriptFailure(ctx context.Context, o *process.Outcome) error {
	var what string
	switch {
	case errors.Is(o.Err, process.ErrStuck):
		what = "was killed, but has not ended: it is in uninterruptible sleep"
	case errors.Is(o.Err, process.ErrProcesses):
		what = "was killed: it started too many processes"
	case errors.Is(o.Err, context.DeadlineExceeded):
		what = "was killed: it exceeded its timeout"
	case o.Err != nil && ctx.Err() != nil:
		what = "was killed: it was cancelled"
	case o.Err != nil:
		return &operation.OutcomeUnknown{Err: fmt.Errorf("script: %w", o.Err)}
	case o.State.Success():
		return nil
	default:
		what = fmt.Sprintf("ended with exit code %d", o.State.ExitCode())
		if w, ok := o.State.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			what = "was ended by " + unix.SignalName(w.Signal())
		}
	}
	if text := strings.TrimSpace(string(o.StderrEnd)); text != "" {
		mark := ""
		if len(text) > maxStderr {
			text, mark = strings.ToValidUTF8(text[len(text)-maxStderr:], ""), "…"
		}
		what += ": " + mark + display.Safe(text, maxStderr)
	}
	err := &scriptError{text: "script " + what, cause: o.Err}
	if o.Err == nil && o.State.Exited() {
		return err
	}
	return &operation.OutcomeUnknown{Err: err} // it was killed somewhere in the middle
}

// scriptError describes how a script ended, and wraps the reason if it was killed for one.
type scriptError struct {
	text  string
	cause error
}

func (e *scriptError) Error() string { return e.text }
func (e *scriptError) Unwrap() error { return e.cause }
