package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe/podsource"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// diagnoseSettings configure the diagnoses of run and agent.
type diagnoseSettings struct {
	On           bool   `mapstructure:"diagnose" yaml:"diagnose"`
	Dir          string `mapstructure:"diagnose-dir" yaml:"diagnose-dir"`
	Keep         int    `mapstructure:"diagnose-keep" yaml:"diagnose-keep"`
	ArtifactsMiB int64  `mapstructure:"diagnose-artifacts-mib" yaml:"diagnose-artifacts-mib"`
	StorageDir   string `mapstructure:"diagnose-storage-dir" yaml:"diagnose-storage-dir"`
	Scripts      bool   `mapstructure:"diagnose-scripts" yaml:"diagnose-scripts"`
}

func diagnoseFlags(fs *pflag.FlagSet) {
	fs.Bool("diagnose", true, "find the cause of problems by the triggers in force")
	fs.String("diagnose-dir", "", "`folder` of manifests (OperationSets, Operations, Triggers), read again when they change; they come over the shipped ones")
	fs.Int("diagnose-keep", 100, "`number` of completed runs to keep, the newest")
	fs.Int64("diagnose-artifacts-mib", artifact.DefaultBudget>>20, "bound of what operations keep, in `MiB`")
	fs.String("diagnose-storage-dir", "", "`folder` below which operations may have their results kept (storage.hostPath); empty: diagnose/storage in the state folder")
	fs.Bool("diagnose-scripts", false, "let operations that are scripts run, as nobody, within bounds (docs/operations.md)")
}

func (s *diagnoseSettings) check(from config.Origins, stateDir string) error {
	var errs []error
	if s.Keep < 1 {
		errs = append(errs, from.Errorf("diagnose-keep", "%d, want at least 1", s.Keep))
	}
	if s.ArtifactsMiB < 1 {
		errs = append(errs, from.Errorf("diagnose-artifacts-mib", "%d, want at least 1", s.ArtifactsMiB))
	}
	switch dir := s.StorageDir; {
	case dir == "":
	case !filepath.IsAbs(dir):
		errs = append(errs, from.Errorf("diagnose-storage-dir", "%q, want an absolute path", dir))
	case artifact.OfSystem(dir) || within(stateDir, dir) || within(dir, stateDir):
		errs = append(errs, from.Errorf("diagnose-storage-dir", "%q, want a folder of its own: neither of the system, nor in or above the state folder", dir))
	}
	return errors.Join(errs...)
}

// within reports whether a path is another, or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// diagnoses makes and runs Diagnoses. A nil one is switched off.
type diagnoses struct {
	worker  *worker.Worker
	scripts *remote.Scripts
	agent   *agent
	cluster *kube.Store // nil: there is none
	// lease says which other agents of the node live; nil: nobody does, or not before start.
	lease *lease.Keeper
}

// openDiagnoses makes what finds causes; known are the node's pods, in a cluster never nil.
// What is wrong with manifests is reported here.
func openDiagnoses(cfg agentConfig, a *agent, known *podSource, log *slog.Logger) (*diagnoses, error) {
	if !cfg.Diagnose.On {
		return nil, nil
	}
	c := worker.Config{
		Namespace: cmp.Or(cfg.Kube.Namespace, os.Getenv("POD_NAMESPACE"), metav1.NamespaceSystem),
		Dir:       dirsOf(cfg.StateDir).root, Keep: cfg.Diagnose.Keep,
		Artifacts: artifact.Config{Budget: cfg.Diagnose.ArtifactsMiB << 20, Storage: cfg.Diagnose.StorageDir}, Log: log,
	}
	d := &diagnoses{agent: a}
	c.Ended = d.ended
	var err error
	if cfg.kube == nil {
		err = d.alone(&c, cfg, known)
	} else {
		err = d.inCluster(&c, cfg, known)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Diagnose.Scripts {
		c.Scripts = remote.OpenScripts(log)
		d.scripts = c.Scripts
	}
	if d.worker, err = worker.New(c); err != nil {
		d.scripts.Close()
		return nil, err
	}
	a.metrics.Own.MustRegister(d.worker)
	return d, nil
}

// hostOf is the machine that is looked at; pods are its, nil where nobody knows of any.
func hostOf(cfg agentConfig, pods operation.Pods) operation.Host {
	root := hostfs.New(cfg.HostRoot)
	return operation.Host{FS: root, Symbols: hostfs.NewSymbols(root), Pods: pods}
}

// alone is without a cluster: manifests are files, and nobody decides on repairs.
func (d *diagnoses) alone(c *worker.Config, cfg agentConfig, known *podSource) (err error) {
	if c.Node, _, err = cfg.Kube.nodeName(cfg.origins); err != nil {
		// It only names what nobody else sees.
		c.Log.Warn("diagnoses call this node localhost", "error", err)
		c.Node = "localhost"
	}
	c.Observe = true
	var whole operation.Pods
	if known != nil {
		whole = known.whole
	}
	c.Builtins = catalog.All(hostOf(cfg, whole))
	c.Store, err = openFolder(cfg, c.Builtins, c.Log)
	return err
}

// inCluster has manifests and Diagnoses from the API server.
func (d *diagnoses) inCluster(c *worker.Config, cfg agentConfig, known *podSource) (err error) {
	if cfg.Diagnose.Dir != "" {
		c.Log.Warn("manifests of the folder are not read, in a cluster the API server has them", "diagnose_dir", cfg.Diagnose.Dir)
	}
	c.Node = cfg.kube.node
	client, err := kubernetes.NewForConfig(cfg.kube.rest)
	if err != nil {
		return err
	}
	c.Builtins = catalog.All(hostOf(cfg, known.whole))
	builtin := make(map[string]bool, len(c.Builtins))
	for i := range c.Builtins {
		builtin[c.Builtins[i].Name] = true
	}
	d.cluster, err = kube.New(kube.Config{
		REST: cfg.kube.rest, Node: c.Node, Dir: c.Dir, Log: c.Log,
		Builtin: func(name string) bool { return builtin[name] },
	})
	if err != nil {
		return err
	}
	c.Store = d.cluster
	c.Gone = func(holder string) bool { return d.lease.Gone(holder) }
	c.TenantPod = func(ctx context.Context, of *v1alpha1.Diagnosis) (tenancy.Pod, error) {
		return d.tenantPod(ctx, known, of)
	}
	c.Pod = func(uid string) *trigger.Pod {
		p, ok := known.Pod(uid)
		if !ok {
			return nil
		}
		return &trigger.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Labels, Node: c.Node}
	}
	c.PodsKnown = known.Known
	c.PodUID = func(namespace, name string) string {
		p, _ := known.Named(namespace, name)
		return p.UID
	}
	secrets := client.CoreV1().Secrets(c.Namespace)
	c.Secret = func(ctx context.Context, name string) (map[string][]byte, error) {
		s, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return s.Data, nil
	}
	return nil
}

// tenantPod returns the pod of a Diagnosis outside the system namespace.
func (d *diagnoses) tenantPod(ctx context.Context, known *podSource, of *v1alpha1.Diagnosis) (tenancy.Pod, error) {
	if known.doubt != nil {
		return tenancy.Pod{}, tenancy.Refusals{known.doubt.Error()}
	}
	p, err := known.whole.Pod(ctx, of.Namespace, of.Spec.PodReference.Name)
	switch {
	case err == nil:
		return tenancy.PodOf(p, of.Spec.PodReference)
	case errors.Is(err, podsource.ErrNoPod): // a kubelet that starts does not have all yet
		return tenancy.Pod{}, fmt.Errorf("%w: %w", worker.ErrLater, worker.ErrGone)
	case known.ofKubelet:
		return tenancy.Pod{}, fmt.Errorf("%w: %w", worker.ErrLater, err)
	}
	return tenancy.Pod{}, d.cluster.Explain(ctx, "pod of the Diagnosis", err)
}

// api is the store over the API server; nil: there is none.
func (d *diagnoses) api() *kube.Store {
	if d == nil {
		return nil
	}
	return d.cluster
}

// openFolder reads the shipped manifests and the operator's over them.
func openFolder(cfg agentConfig, builtins []operation.Builtin, log *slog.Logger) (*worker.Folder, error) {
	var shipped []document.File
	for _, name := range shippedSets() {
		f, err := shippedFile(name)
		if err != nil {
			return nil, err
		}
		shipped = append(shipped, f)
	}
	return worker.OpenFolder(worker.FolderConfig{Shipped: shipped, Dir: cfg.Diagnose.Dir, Builtins: builtins, Watch: document.Watch, Log: log})
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

// ended reports a Diagnosis that has ended.
func (d *diagnoses) ended(e *worker.Ended) {
	a := d.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.out.Diagnosis(time.Now(), diagnosisLine(e)); err != nil {
		a.metrics.OutputError()
	}
	a.flushEntries()
	a.page.Changed()
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
