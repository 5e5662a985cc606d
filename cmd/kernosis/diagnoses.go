package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/worker/folder"
	"github.com/kernosis/kernosis/diagnose/yamldoc"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// diagnoseSettings are what run and agent can be told of diagnoses.
type diagnoseSettings struct {
	On           bool   `mapstructure:"diagnose" yaml:"diagnose"`
	Dir          string `mapstructure:"diagnose-dir" yaml:"diagnose-dir"`
	Keep         int    `mapstructure:"diagnose-keep" yaml:"diagnose-keep"`
	ArtifactsMiB int64  `mapstructure:"diagnose-artifacts-mib" yaml:"diagnose-artifacts-mib"`
	Scripts      bool   `mapstructure:"diagnose-scripts" yaml:"diagnose-scripts"`
}

func diagnoseFlags(fs *pflag.FlagSet) {
	fs.Bool("diagnose", true, "find the cause of problems by the triggers in force")
	fs.String("diagnose-dir", "", "`folder` of manifests (OperationSets, Operations, Triggers), read again when they change; they come over the shipped ones")
	fs.Int("diagnose-keep", 100, "how many runs that have ended are kept, the newest")
	fs.Int64("diagnose-artifacts-mib", artifact.DefaultBudget>>20, "bound of what operations keep, in `MiB`")
	fs.Bool("diagnose-scripts", false, "let operations that are scripts run, as nobody, within bounds (docs/operations.md)")
}

func (s *diagnoseSettings) check(from origins) error {
	var errs []error
	if s.Keep < 1 {
		errs = append(errs, from.errorf("diagnose-keep", "%d, want at least 1", s.Keep))
	}
	if s.ArtifactsMiB < 1 {
		errs = append(errs, from.errorf("diagnose-artifacts-mib", "%d, want at least 1", s.ArtifactsMiB))
	}
	return errors.Join(errs...)
}

// diagnoses makes and runs Diagnoses. A nil one is switched off.
type diagnoses struct {
	worker  *worker.Worker
	scripts *operation.Scripts
	metrics *metrics.Diagnoses
	agent   *agent
}

// openDiagnoses makes what finds causes. What is wrong with manifests is told here.
func openDiagnoses(cfg config, a *agent, log *slog.Logger) (*diagnoses, error) {
	if !cfg.Diagnose.On || cfg.kube != nil { // in a cluster the API server has the Diagnoses
		return nil, nil
	}
	node, _, err := cfg.Kube.nodeName(cfg.origins)
	if err != nil {
		// It only names what nobody else sees.
		log.Warn("diagnoses call this node localhost", "error", err)
		node = "localhost"
	}
	root := hostfs.New(cfg.HostRoot)
	builtins := operation.All(operation.Host{FS: root, Symbols: hostfs.NewSymbols(root)})
	store, err := openFolder(cfg, builtins, log)
	if err != nil {
		return nil, err
	}
	d := &diagnoses{agent: a}
	if d.scripts, err = operation.OpenScripts(operation.ScriptConfig{Enabled: cfg.Diagnose.Scripts}, log); err != nil {
		return nil, cfg.origins.errorf("diagnose-scripts", "%w", err)
	}
	d.worker, err = worker.New(worker.Config{
		Node: node, Namespace: cmp.Or(cfg.Kube.Namespace, os.Getenv("POD_NAMESPACE"), metav1.NamespaceSystem),
		Dir: dirsOf(cfg.StateDir).root, Store: store, Observe: true,
		Builtins: builtins, Scripts: d.scripts, Keep: cfg.Diagnose.Keep,
		Artifacts: artifact.Config{Budget: cfg.Diagnose.ArtifactsMiB << 20},
		Ended:     d.ended, Log: log,
	})
	if err != nil {
		d.scripts.Close()
		return nil, err
	}
	d.metrics = a.metrics.Diagnoses(d.stats)
	return d, nil
}

// openFolder reads the shipped manifests and the operator's over them.
func openFolder(cfg config, builtins []operation.Builtin, log *slog.Logger) (*folder.Store, error) {
	var shipped []yamldoc.File
	for _, name := range shippedSets() {
		f, err := shippedFile(name)
		if err != nil {
			return nil, err
		}
		shipped = append(shipped, f)
	}
	return folder.Open(folder.Config{Shipped: shipped, Dir: cfg.Diagnose.Dir, Builtins: builtins, Watch: detector.Watch, Log: log})
}

// start runs diagnoses until ctx ends.
func (d *diagnoses) start(ctx context.Context, g *errgroup.Group) {
	if d != nil {
		g.Go(func() error { return d.worker.Run(ctx) })
	}
}

func (d *diagnoses) close() {
	if d != nil {
		d.scripts.Close()
	}
}

// ended tells of a Diagnosis that has ended.
func (d *diagnoses) ended(e *worker.Ended) {
	if e.After > 0 {
		d.metrics.Ended(e.After)
	}
	a := d.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.out.Diagnosis(time.Now(), diagnosisLine(e)); err != nil {
		a.metrics.OutputError()
	}
}

// diagnosisLine is what is printed of it.
func diagnosisLine(e *worker.Ended) *console.Diagnosis {
	s := e.Status
	out := &console.Diagnosis{
		ID: e.ID, Namespace: e.Diagnosis.Namespace, Name: e.Diagnosis.Name, Trigger: e.Diagnosis.Labels[v1alpha1.LabelTrigger],
		OperationSet: e.Diagnosis.Spec.OperationSet, Subject: s.Subject, Phase: string(s.Phase), Reason: e.Reason, Message: e.Message,
		Action: s.Action, Files: e.Files, After: e.After,
	}
	if s.Verdict != nil {
		out.Verdict = &console.Cause{Reason: s.Verdict.Reason, Message: s.Verdict.Message}
	}
	operations := map[int32]string{}
	for i := range s.Results {
		r := &s.Results[i]
		operations[r.ID] = r.Operation
		if r.State == v1alpha1.ResultRefuted {
			out.Excluded = append(out.Excluded, console.Cause{Reason: r.Reason, Message: r.Message})
		}
	}
	for _, id := range s.SucceededPath {
		out.Path = append(out.Path, operations[id])
	}
	return out
}

// stats is what the metrics show.
func (d *diagnoses) stats() metrics.DiagnoseStats {
	w := d.worker.Stats()
	s := metrics.DiagnoseStats{
		Triggers: make(map[string]metrics.TriggerStats, len(w.Triggers)), Refused: w.Refused,
		Taken: w.Taken, Made: w.Made, Dropped: w.Dropped, Ended: make(map[string]uint64, len(w.Ended)), Writes: w.Writes,
		Unsaved: w.Unsaved, Running: w.Running, Waiting: w.Waiting, Untold: w.Untold,
	}
	for name, t := range w.Triggers {
		s.Triggers[name] = metrics.TriggerStats{Wanted: t.Started, Withheld: t.Withheld}
	}
	for phase, n := range w.Ended {
		s.Ended[string(phase)] = n
	}
	return s
}
