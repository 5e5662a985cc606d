package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:     "demo",
		Short:   "Inject real faults and show each one detected, attributed, explained and cleared",
		Example: "  sudo kernosis demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Minute)
			defer cancel()
			return output.Failed(demo(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
}

// detectWithin is how long the detection of a drill's fault may take; clearWithin is how long
// problems may take to clear after the last drill.
const (
	detectWithin = 40 * time.Second
	clearWithin  = 30 * time.Second
)

func demo(ctx context.Context, out, errOut io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("demo: needs root: it loads BPF programs and provokes real faults")
	}
	dir, err := os.MkdirTemp("/run", "kernosis-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	remove := func(path string) {
		if err := os.RemoveAll(path); err != nil {
			fmt.Fprintln(errOut, "demo: clean up:", err)
		}
	}
	defer remove(dir)
	if err := writeQuickRules(filepath.Join(dir, "rules")); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := writeDemoTriggers(filepath.Join(dir, "diagnose-dir")); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	btf := "yes"
	if _, err := bpf.OpenKernel(); err != nil {
		btf = "no"
	}
	fmt.Fprintf(out, "Kernel %s, BTF %s. Faults run in their own control groups, network namespaces\nand loop files. Quiet times of rules are cut to 5 s, so that problems clear soon.\n\n", status.Kernel(), btf)

	d := &demoRun{out: out, errOut: errOut, dir: dir, pins: fmt.Sprintf("/sys/fs/bpf/kernosis-demo-%d", os.Getpid())}
	defer remove(d.pins)
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer d.stop()

	var outcomes []*outcome
	for _, dr := range drills(dir) {
		o := &outcome{drill: dr}
		outcomes = append(outcomes, o)
		d.drill(ctx, o)
		if ctx.Err() != nil {
			return fmt.Errorf("demo: %w", ctx.Err())
		}
	}
	d.awaitClear(ctx, outcomes)
	return d.table(outcomes)
}

// writeQuickRules copies the shipped rules with shorter times (see quicker).
func writeQuickRules(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return fs.WalkDir(detector.Shipped(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, "_test.yaml") {
			return err
		}
		text, err := fs.ReadFile(detector.Shipped(), path)
		if err != nil {
			return err
		}
		if text, err = quicker(text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return os.WriteFile(filepath.Join(dir, path), text, 0o600)
	})
}

// writeDemoTriggers copies the manifests for disk errors, changed to consider recent errors only:
// an earlier drill may have caused errors on the same loop device.
func writeDemoTriggers(dir string) error {
	f, err := manifest.ShippedFile("disk-error")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	const of = "  operationSet: disk-error\n"
	text := strings.ReplaceAll(string(f.Data), of, of+"  parameters: {maxAge: 2s}\n")
	return os.WriteFile(filepath.Join(dir, f.Name), []byte(text), 0o600)
}

// quicker shortens the times that a rule file's rules wait before they fire, and before they clear
// because no new fault came.
func quicker(text []byte) ([]byte, error) {
	const quick = "5s"
	var file struct {
		APIVersion string           `yaml:"apiVersion"`
		Conditions map[string]any   `yaml:"conditions,omitempty"`
		Rules      []map[string]any `yaml:"rules"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	for _, r := range file.Rules {
		if _, ok := r["for"]; ok {
			r["for"] = quick
		}
		_, clears := r["clearWhen"]
		if _, quiet := r["clearAfter"]; quiet || !clears {
			r["clearAfter"] = quick
		}
	}
	return yaml.Marshal(file)
}

// demoStep is a line of the agent's output: a journal entry, or a Diagnosis that has ended.
type demoStep struct {
	journal.Entry
	Diagnosis *console.Diagnosis `json:"diagnosis"`
}

// demoRun runs the demo's agent and reads its output.
type demoRun struct {
	out, errOut io.Writer
	dir, pins   string
	cmd         *exec.Cmd
	steps       chan demoStep
	seen        []demoStep
	lines       console.Writer
	lost        uint64
	// fsErrors has the time of the latest filesystem error by device, because the event of a
	// mount's state has no time of the fault.
	fsErrors map[string]time.Time
}

func (d *demoRun) start(ctx context.Context) error {
	var err error
	d.cmd, err = tied(ctx, "run", "-o", "json",
		"--state-dir", filepath.Join(d.dir, "state"), "--rules-dir", filepath.Join(d.dir, "rules"), "--diagnose-dir", filepath.Join(d.dir, "diagnose-dir"),
		"--targets-dir", filepath.Join(d.dir, "targets.d"), "--pin-root", d.pins,
		// The kernel's log may have faults of the machine from before the demo.
		"--log", "none",
		"--listen", "", "--hung-task-after", "3s", "--log-level", "warn")
	if err != nil {
		return err
	}
	d.cmd.Stderr = d.errOut
	pipe, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.StartTied(d.cmd); err != nil {
		return err
	}
	d.lines, d.fsErrors = console.NewText(d.out), map[string]time.Time{}
	d.steps = make(chan demoStep, 1024)
	go func() {
		defer close(d.steps)
		s := bufio.NewScanner(pipe)
		s.Buffer(nil, 4<<20)
		for s.Scan() {
			var step demoStep
			if json.Unmarshal(s.Bytes(), &step) == nil {
				d.steps <- step
			}
		}
	}()
	up := map[string]bool{}
	return d.await(ctx, 30*time.Second, "the agent's sources", func(e demoStep) bool {
		if e.Event != nil && e.Event.Kind == event.Source {
			up[e.Event.SourceUp.Stem] = true
			if !e.Event.SourceUp.Up {
				fmt.Fprintf(d.out, "%s can't be monitored here: %s\n", e.Event.SourceUp.Stem, e.Event.SourceUp.Reason)
			}
		}
		for _, s := range bpf.Stems() {
			if !up[s.Name] {
				return false
			}
		}
		return true
	})
}

// tied returns a command that runs this program, and gets SIGTERM when ctx or this process ends.
func tied(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd, nil
}

// await reads steps until one satisfies done.
func (d *demoRun) await(ctx context.Context, within time.Duration, what string, done func(demoStep) bool) error {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		select {
		case e, ok := <-d.steps:
			if !ok {
				return errors.New("the agent ended")
			}
			d.seen = append(d.seen, e)
			d.show(e)
			if done(e) {
				return nil
			}
		case <-timeout.C:
			return fmt.Errorf("no %s within %s", what, within)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// show prints a step as an operator would see it, except the start of sources.
func (d *demoRun) show(e demoStep) {
	if e.Event != nil && e.Event.Lost != nil {
		d.lost += e.Event.Lost.Count
	}
	if e.Event != nil && e.Event.Kind == event.FSError {
		d.fsErrors[e.Event.Device.Name] = e.Event.Time
	}
	if e.Event != nil && e.Event.Kind == event.Source {
		return
	}
	err := d.lines.Write(e.Entry)
	if e.Diagnosis != nil {
		err = d.lines.Diagnosis(e.Now, e.Diagnosis)
	}
	_, flushed := d.lines.Flush()
	if err = errors.Join(err, flushed); err != nil {
		fmt.Fprintln(d.errOut, err)
	}
}

// drill injects one fault, and keeps it until it is detected and diagnosed.
func (d *demoRun) drill(ctx context.Context, o *outcome) {
	f, ok := inject.Find(o.fault)
	if !ok {
		o.err = errors.New("no such fault")
		return
	}
	if err := f.Check(); err != nil {
		o.refused = err.Error()
		return
	}
	fmt.Fprintf(d.out, "--- kernosis inject %s: %s\n", f.Name, f.Does)
	began, until, ended := time.Now(), make(chan struct{}), make(chan error, 1)
	env := inject.Env{
		Duration: o.lasts, Count: o.count, TargetsDir: filepath.Join(d.dir, "targets.d"), WaitTarget: waitTarget(d.pins),
		StateDir: filepath.Join(d.dir, "inject"),
	}
	if o.count == 0 {
		env.Until = until
	}
	go func() {
		_, err := f.Run(ctx, env)
		ended <- err
	}()
	o.err = d.await(ctx, detectWithin, "detection", func(e demoStep) bool { return o.detected(e.Entry, d.fsErrors) })
	if o.err == nil && env.Until != nil {
		diagnosed := func(demoStep) bool { return d.diagnosis(o) != nil }
		if err := d.await(ctx, detectWithin-time.Since(began), "Diagnosis", diagnosed); err != nil {
			fmt.Fprintf(d.errOut, "demo: %s: %v\n", o.fault, err)
		}
	}
	close(until)
	if err := <-ended; err != nil {
		o.err = err
	}
}

// awaitClear waits until every detected problem has resolved.
func (d *demoRun) awaitClear(ctx context.Context, outcomes []*outcome) {
	settle := func() bool {
		all := true
		for _, o := range outcomes {
			if o.problem != nil && !o.cleared {
				o.cleared = d.resolved(o)
				all = all && o.cleared
			}
		}
		return all
	}
	if settle() {
		return
	}
	fmt.Fprintf(d.out, "--- waiting for problems to clear\n")
	if err := d.await(ctx, clearWithin, "clearing", func(demoStep) bool { return settle() }); err != nil {
		fmt.Fprintln(d.errOut, "demo:", err)
	}
}

func (d *demoRun) resolved(o *outcome) bool {
	for _, e := range d.seen {
		for _, t := range e.Transitions {
			if p := t.Problem; p != nil && p.Rule == o.rule && p.Group == o.problem.Group && p.State == problem.Resolved {
				return true
			}
		}
	}
	return false
}

// diagnosis returns the first Diagnosis of the drill's subject, which ended while the fault lasted, or
// nil.
func (d *demoRun) diagnosis(o *outcome) *console.Diagnosis {
	for _, e := range d.seen {
		if dx := e.Diagnosis; dx != nil && dx.Subject == o.problem.Subject && !e.Now.Before(o.event.Time) {
			return dx
		}
	}
	return nil
}

// verdict returns what the drill's Diagnosis found.
func (d *demoRun) verdict(o *outcome) string {
	switch dx := d.diagnosis(o); {
	case dx == nil || dx.Verdict == nil && dx.Reason == v1alpha1.ReasonNoPathSucceeded:
		return "none"
	case dx.Verdict != nil:
		return dx.Verdict.Reason
	default:
		return dx.Phase
	}
}

func (d *demoRun) table(outcomes []*outcome) error {
	fmt.Fprintln(d.out)
	var rows output.Rows
	rows.Add("FAULT", "DETECTED", "AFTER", "ATTRIBUTED TO", "CAUSE", "VERDICT", "CLEARED")
	detected, possible := 0, 0
	var missed []error
	for _, o := range outcomes {
		if o.refused != "" {
			rows.Add(o.fault, "n/a", "", "", o.refused)
			continue
		}
		possible++
		if o.problem == nil || o.err != nil {
			rows.Add(o.fault, "NO")
			missed = append(missed, fmt.Errorf("%s: %w", o.fault, o.err))
			continue
		}
		detected++
		cleared := "yes"
		if !o.cleared {
			cleared = "NO"
			missed = append(missed, fmt.Errorf("%s: detected, but did not clear", o.fault))
		}
		rows.Add(o.fault, "yes", roundLatency(o.after).String(), attributedTo(o), o.cause(o.event), d.verdict(o), cleared)
	}
	if err := rows.Write(d.out); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%d/%d detected, %d records lost.   Next: kernosis run · kernosis inject · kernosis features\n", detected, possible, d.lost)
	if d.lost > 0 {
		missed = append(missed, fmt.Errorf("%d records were lost", d.lost))
	}
	return errors.Join(missed...)
}

func (d *demoRun) stop() {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		fmt.Fprintln(d.errOut, "demo: stop the agent:", err)
	}
	go func() {
		for range d.steps { // drain the output, so that the agent can write its last lines
		}
	}()
	if err := d.cmd.Wait(); err != nil {
		fmt.Fprintln(d.errOut, "demo: the agent:", err)
	}
}
