package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

type diagnoseRun struct {
	source       setSource
	parameters   []string
	node         string
	stateDir     string
	id           string
	format       *output.Format
	keep         int
	allowRepairs bool
	allowScripts bool
}

func newDiagnoseRun() *cobra.Command {
	var c diagnoseRun
	cmd := &cobra.Command{
		Use:   "run {-f FILE [OPERATIONSET] | --shipped NAME} [-p KEY=VALUE]…",
		Short: "Run the graph of an OperationSet on this machine",
		Long: `Run the graph of an OperationSet on this machine with the real operations. Each operation
is printed when it ends, then the verdict, the excluded causes with their evidence, and the
files that were kept. Most operations need root.

By default nothing on the machine is changed: repairs are only listed. With
--allow-repairs the repairs of the graph DO RUN, HERE AND AT ONCE, without asking again:
units are restarted, web servers called, scripts run. There is no policy, budget or
cooldown without a cluster. A graph with an operation that changes API objects, such as
cordon, is then refused: only the controller of a cluster runs those.

Ctrl-C interrupts a run; the same command with --id resumes it. A run that has ended is
only printed again.

Exit code: 0 a path succeeded (there is a cause); 1 none did; 2 bad input; 3 the run was
interrupted, or the outcome of a repair is unknown.`,
		Example: `  sudo kernosis diagnose run --shipped disk-error -p device=sdb
  sudo kernosis diagnose run -f set.yaml -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args) },
	}
	f := cmd.Flags()
	c.source.flags(cmd)
	f.StringArrayVarP(&c.parameters, "parameter", "p", nil, "parameter of the operations, `key=value` (repeatable)")
	f.StringVar(&c.node, "node", "", "`name` of this node; empty: the host's")
	f.StringVar(&c.id, "id", "", "`name` of the run; an interrupted run is resumed (default: a new run)")
	c.format = output.Add(cmd)
	f.IntVar(&c.keep, "keep", 100, "`number` of completed runs to keep, the newest; artifacts also have a budget")
	f.BoolVar(&c.allowRepairs, "allow-repairs", false, "run the repairs of the graph on this machine")
	f.BoolVar(&c.allowScripts, "allow-scripts", false, "allow operations that are scripts; they run as nobody, with limits (docs/operations.md)")
	stateDirFlag(f, &c.stateDir)
	_ = cmd.RegisterFlagCompletionFunc("parameter", c.completeParameter) // the flag exists
	completeFlag(cmd, "id", func() []string { return runNames(c.stateDir) })
	return cmd
}

func (c *diagnoseRun) run(cmd *cobra.Command, args []string) error {
	if c.keep < 1 {
		return fmt.Errorf("keep %d: want 1 or more", c.keep)
	}
	m, set, err := c.source.load(cmd, args)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	config := resolve.Of(m.Operations, catalog.All(operation.HostAt("/", nil)))
	if c.allowScripts {
		config.Scripts = remote.OpenScripts(log)
		defer config.Scripts.Close()
	}
	plan, err := resolve.Set(config, set)
	if err != nil {
		return resolve.In(m, err)
	}
	for _, id := range plan.Scripts {
		if !c.allowScripts {
			return fmt.Errorf("run: node %d (%s) is a script: allow it with --allow-scripts", id, plan.Graph.Node(id).Operation)
		}
	}
	if c.allowRepairs && len(plan.ByController) > 0 {
		id := plan.ByController[0]
		return fmt.Errorf("run: node %d (%s) changes API objects, which only the controller of a cluster does; omit --allow-repairs for a dry run", id, plan.Graph.Node(id).Operation)
	}
	dir, unlock, err := lockRuns(c.stateDir, c.id)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer unlock()
	d, err := c.diagnosis(set.Name, plan, dir)
	if err != nil {
		return err
	}
	effects := make([]v1alpha1.Effect, plan.Graph.Len())
	for id := range effects {
		effects[id] = plan.Effect(id)
	}
	return c.execute(cmd, &agent.Diagnosis{Dir: dir, Graph: d.Graph, Effects: effects, Parameters: d.Parameters, Set: set.Name, Node: c.node}, d, personGate{c.allowRepairs, plan.ByController}, log)
}

func (c *diagnoseRun) diagnosis(set string, plan *resolve.Plan, dir string) (*runner.Diagnosis, error) {
	given, err := parseParameters(c.parameters)
	if err != nil {
		return nil, err
	}
	if c.node == "" {
		if c.node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("name of this node: %w; set it with --node", err)
		}
	}
	if given["node"] == "" && slices.Contains(plan.Parameters(), "node") {
		given["node"] = c.node
	}
	d := &runner.Diagnosis{ID: cmp.Or(c.id, newDiagnosisID(set)), Graph: plan.Graph, Steps: plan.Steps, Parameters: given}
	// A run that is continued keeps its parameters.
	saved, err := runner.ReadSaved(worker.Checkpoints(dir), d.ID)
	_, damaged := errors.AsType[*runner.CheckpointError](err)
	switch {
	case err == nil && len(c.parameters) == 0:
		d.Parameters = saved.Parameters
	case err == nil && !maps.Equal(saved.Parameters, given):
		return nil, fmt.Errorf("run: %s was started with other parameters (%s); omit -p to resume it, or start a new run without --id", d.ID, parameterText(saved.Parameters))
	case err != nil && !damaged && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("run: %w", err)
	}
	d.MayRepair = damaged // nothing else remembers whether its graph had a repair
	return d, plan.CheckParameters(d.Parameters)
}

func parseParameters(texts []string) (map[string]string, error) {
	given := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if _, twice := given[key]; !ok || key == "" || twice {
			why := "want key=value"
			if twice {
				why = "given twice"
			}
			return nil, fmt.Errorf("parameter %.80q: %s", text, why)
		}
		given[key] = value
	}
	return given, nil
}

func parameterText(parameters map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		out = append(out, key+"="+parameters[key])
	}
	return cmp.Or(strings.Join(out, " "), "none")
}

// newDiagnosisID returns an ID that begins with the set's name, so that a list of runs is readable.
func newDiagnosisID(set string) string {
	const most = 64 // an ID may be longer
	var random [3]byte
	_, _ = rand.Read(random[:]) // it never fails
	return set[:min(len(set), most)] + time.Now().Format("-20060102-150405-") + hex.EncodeToString(random[:])
}

func (c *diagnoseRun) execute(cmd *cobra.Command, view *agent.Diagnosis, d *runner.Diagnosis, gate personGate, log *slog.Logger) error {
	dir := view.Dir
	store, err := artifact.Open(artifact.Config{Dir: worker.Artifacts(dir), Storage: worker.Storage(dir)}, log)
	if err != nil {
		return output.Failed(fmt.Errorf("run: %w", err))
	}
	defer store.Close()
	report := newProgress(cmd.OutOrStdout(), d.Graph)
	changed := report.changed
	if !c.format.ForPeople() {
		changed = nil
	}
	r, err := runner.New(runner.Config{
		Dir: worker.Checkpoints(dir), Gate: gate, Changed: changed, Log: log,
		Artifacts: func(id string) (runner.Artifacts, error) { return store.Begin(id) },
	})
	if err != nil {
		return output.Failed(err)
	}
	if c.format.ForPeople() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s on %s, run %s\n", view.Set, view.Node, d.ID)
	}
	rep, err := r.Execute(cmd.Context(), d)
	if rep == nil {
		return err
	}
	view.Report = rep
	if view.Artifacts, err = artifact.Read(worker.Artifacts(dir), d.ID); err != nil {
		log.Warn("can't list artifacts", "error", err)
	}
	if err := writeRun(view, cmd.OutOrStdout(), c.format); err != nil {
		return output.Failed(err)
	}
	if err := forgetOld(r, store, dir, c.keep); err != nil {
		log.Warn("can't remove old runs", "error", err)
	}
	return runExit(cmd.Context(), rep)
}

func runExit(ctx context.Context, rep *runner.Report) error {
	switch {
	case rep.Phase == v1alpha1.PhaseSucceeded:
		return nil
	case rep.Phase == v1alpha1.PhaseFailed || rep.Phase == v1alpha1.PhaseCancelled:
		return &output.ExitError{Code: output.ExitFailed}
	case ctx.Err() != nil:
		return &output.ExitError{Code: output.ExitOpen, Err: fmt.Errorf("interrupted; to resume, repeat the command with --id %s", rep.ID)}
	}
	return &output.ExitError{Code: output.ExitOpen}
}

// personGate decides on repairs by the command's flags, because there is no policy.
type personGate struct {
	allow        bool
	byController []int // graph nodes whose operation only a cluster's controller can run
}

func (g personGate) Allow(_ context.Context, a *runner.Action) (runner.Decision, error) {
	if slices.Contains(g.byController, a.ID) {
		return runner.Decision{Verb: v1alpha1.RemediationWouldRun, Reason: v1alpha1.ReasonObserveOnly, Message: "only the controller of a cluster runs it"}, nil
	}
	if g.allow {
		return runner.Decision{Verb: v1alpha1.RemediationRun}, nil
	}
	return runner.Decision{Verb: v1alpha1.RemediationWouldRun, Reason: v1alpha1.ReasonObserveOnly, Message: "run it with --allow-repairs"}, nil
}

// forgetOld removes the oldest ended runs, except the newest keep.
func forgetOld(r *runner.Runner, store *artifact.Store, dir string, keep int) error {
	views, err := agent.ReadDiagnoses(dir)
	if err != nil {
		return err
	}
	// Runs of the agent are not removed: it may not have reported them yet.
	ended := slices.DeleteFunc(views, func(v *agent.Diagnosis) bool {
		return v.Err != nil || !v.Report.Phase.Ended() || worker.Taken(dir, v.Report.ID)
	})
	var errs []error
	for _, v := range ended[:max(0, len(ended)-keep)] { // the list is sorted by age, oldest first
		errs = append(errs, r.Forget(v.Report.ID), store.Remove(v.Report.ID))
	}
	return errors.Join(errs...)
}

// lockRuns locks the folder for a run against other processes, and creates it if it is missing. It is the
// folder that has the run with this id, or else the agent's folder if no agent runs, or else the
// one for runs by hand.
func lockRuns(stateDir, id string) (dir string, unlock func(), err error) {
	all := agent.RunsDirs(stateDir)
	for _, dir := range all {
		if _, err := runner.ReadSaved(worker.Checkpoints(dir), id); err == nil {
			all = []string{dir}
			break
		}
	}
	for _, dir := range all {
		unlock, err = worker.Lock(dir, "diagnose run")
		locked, other := errors.AsType[*worker.LockedError](err)
		switch {
		case err == nil:
			return dir, unlock, nil
		case !other:
			return "", nil, fmt.Errorf("%w; choose another folder with --state-dir", err)
		case locked.Who != worker.Agent:
			return "", nil, fmt.Errorf("another diagnosis is running in %s; choose another folder with --state-dir", dir)
		}
		err = fmt.Errorf("%s belongs to the running agent: only completed runs can be shown; omit --id to start a new run", cmp.Or(id, dir))
	}
	return "", nil, err
}
