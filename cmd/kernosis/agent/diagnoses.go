package agent

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/console"
)

type diagnoseSettings struct {
	On           bool   `mapstructure:"diagnose" yaml:"diagnose"`
	Dir          string `mapstructure:"diagnose-dir" yaml:"diagnose-dir"`
	Keep         int    `mapstructure:"diagnose-keep" yaml:"diagnose-keep"`
	ArtifactsMiB int64  `mapstructure:"diagnose-artifacts-mib" yaml:"diagnose-artifacts-mib"`
	StorageDir   string `mapstructure:"diagnose-storage-dir" yaml:"diagnose-storage-dir"`
	Scripts      bool   `mapstructure:"diagnose-scripts" yaml:"diagnose-scripts"`
}

func diagnoseFlags(fs *pflag.FlagSet) {
	fs.Bool("diagnose", true, "find the cause of problems, as the triggers in force define")
	fs.String("diagnose-dir", "", "`folder` of manifests (OperationSets, Operations, Triggers), reloaded when they change; they override shipped ones")
	fs.Int("diagnose-keep", 100, "`number` of completed runs to keep, the newest")
	fs.Int64("diagnose-artifacts-mib", artifact.DefaultBudget>>20, "size limit of what operations keep, in `MiB`")
	fs.String("diagnose-storage-dir", "", "`folder` below which operations may keep results (storage.hostPath); empty: diagnose/storage in the state folder")
	fs.Bool("diagnose-scripts", false, "allow operations that are scripts; they run as nobody, with limits (docs/operations.md)")
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
		errs = append(errs, from.Errorf("diagnose-storage-dir", "%q, want a dedicated folder: not a system folder, nor in or above the state folder", dir))
	}
	return errors.Join(errs...)
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// openDiagnoses creates the worker that diagnoses problems. It reports errors in manifests.
func (p *parts) openDiagnoses() (err error) {
	cfg := &p.cfg
	if !cfg.Diagnose.On {
		return nil
	}
	c := worker.Config{
		Namespace: cfg.Kube.namespace(), Dir: RunsDir(cfg.StateDir), Keep: cfg.Diagnose.Keep,
		Artifacts: artifact.Config{Budget: cfg.Diagnose.ArtifactsMiB << 20, Storage: cfg.Diagnose.StorageDir},
		Ended:     p.agent.diagnosed, Log: p.log,
	}
	if cfg.cluster == nil {
		err = p.diagnoseAlone(&c)
	} else {
		err = p.diagnoseInCluster(&c)
	}
	if err != nil {
		return err
	}
	if cfg.Diagnose.Scripts {
		c.Scripts = remote.OpenScripts(p.log)
		p.onClose(func() error { c.Scripts.Close(); return nil })
	}
	if p.agent.causes, err = worker.New(c); err != nil {
		return err
	}
	p.metrics.Own.MustRegister(p.agent.causes)
	return nil
}

// diagnoseAlone configures the worker without a cluster: manifests come from files, and nothing
// decides on repairs.
func (p *parts) diagnoseAlone(c *worker.Config) (err error) {
	if c.Node, _, err = p.cfg.Kube.ResolveNodeName(p.cfg.origins); err != nil {
		// The name is only shown on this node.
		c.Log.Warn("diagnoses use localhost as the name of this node", "error", err)
		c.Node = "localhost"
	}
	c.Observe = true
	var whole operation.Pods
	if p.pods != nil {
		whole = p.pods.whole
	}
	c.Builtins = catalog.All(operation.HostAt(p.cfg.HostRoot, whole))
	shipped, err := manifest.ShippedFiles()
	if err != nil {
		return err
	}
	// The operator's manifests override the shipped ones.
	c.Store, err = worker.OpenFolder(worker.FolderConfig{Shipped: shipped, Dir: p.cfg.Diagnose.Dir, Builtins: c.Builtins, Watch: document.Watch, Log: p.log})
	return err
}

// diagnoseInCluster configures the worker to read manifests and Diagnoses from the API server.
// p.pods must be set.
func (p *parts) diagnoseInCluster(c *worker.Config) (err error) {
	cfg, known := &p.cfg, p.pods
	if cfg.Diagnose.Dir != "" {
		c.Log.Warn("manifests of the folder are ignored: in a cluster they are read from the API server", "diagnose_dir", cfg.Diagnose.Dir)
	}
	c.Node = cfg.cluster.node
	c.Builtins = catalog.All(operation.HostAt(cfg.HostRoot, known.whole))
	p.diagnoses, err = kube.New(kube.Config{
		REST: cfg.cluster.rest, Node: c.Node, Dir: c.Dir, Log: c.Log,
		Builtin: func(name string) bool {
			_, ok := operation.Lookup(c.Builtins, name)
			return ok
		},
	})
	if err != nil {
		return err
	}
	p.metrics.Own.MustRegister(p.diagnoses)
	c.Store = p.diagnoses
	c.Gone = func(holder string) bool { return p.agent.cluster.lease.Gone(holder) }
	c.TenantPod = func(ctx context.Context, of *v1alpha1.Diagnosis) (tenancy.Pod, error) {
		return known.tenantPod(ctx, p.diagnoses, of)
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
	secrets := cfg.cluster.api.CoreV1().Secrets(c.Namespace)
	c.Secret = func(ctx context.Context, name string) (map[string][]byte, error) {
		s, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return s.Data, nil
	}
	return nil
}

// diagnosed prints a Diagnosis that has ended and updates the page.
func (a *pipeline) diagnosed(e *worker.Ended) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.out.Diagnosis(time.Now(), diagnosisLine(e)); err != nil {
		a.metrics.OutputErrors(1)
	}
	a.flushEntries()
	a.page.Changed()
}

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
