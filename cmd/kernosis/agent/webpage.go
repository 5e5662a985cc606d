package agent

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/web"
)

// openPage creates the web page of the node. Its streams end with ctx.
func (p *parts) openPage(ctx context.Context) {
	cfg := web.NodePageConfig{
		Node: p.cfg.shownNode(), Version: p.version, Kernel: status.Kernel(), Started: time.Now(),
		Journal: filepath.Join(p.cfg.StateDir, JournalDir), Ended: ctx.Done(),
		Problems: p.agent.problemsNow, Conditions: p.agent.conditions, Sources: p.agent.sourcesNow,
		Degraded: p.self.notes, Losses: p.agent.losses, Cost: cost, Check: p.check,
	}
	if p.agent.causes != nil {
		d := &pageDiagnoses{stateDir: p.cfg.StateDir, worker: p.agent.causes}
		cfg.Diagnoses, cfg.Drawing, cfg.Forget = d.list, d.drawing, d.forget
	}
	of := web.NewNodePage(cfg)
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	p.agent.page = of
}

func (c *Config) shownNode() string {
	if c.cluster != nil {
		return c.cluster.node
	}
	node, _, _ := c.Kube.ResolveNodeName(c.origins)
	return cmp.Or(node, "localhost")
}

func (a *pipeline) problemsNow() []problem.Problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.engine.Problems()
}

// sourcesNow returns the sources, and why they miss events.
func (a *pipeline) sourcesNow() []web.Source {
	a.mu.Lock()
	known := a.engine.Sources()
	a.mu.Unlock()
	out := make([]web.Source, 0, len(known))
	for _, s := range known {
		why := s.Reason
		if s.Up && s.Lost != "" {
			why = "records were lost (" + s.Lost + ")"
		}
		out = append(out, web.Source{Name: s.Stem, Up: s.Up, Why: why})
	}
	return out
}

// losses returns what was lost since the agent started.
func (a *pipeline) losses() []web.Loss {
	var out []web.Loss
	for _, l := range a.metrics.Losses() {
		out = append(out, web.Loss{What: "records of " + l.Stem, Why: l.Reason, Count: l.Count})
	}
	j := a.journal.Stats()
	a.mu.Lock()
	engine := a.engine.Stats()
	a.mu.Unlock()
	add := func(what, why string, count uint64) {
		if count > 0 {
			out = append(out, web.Loss{What: what, Why: why, Count: count})
		}
	}
	add("journal entries", "not written", j.Failed)
	add("journal segments", "dropped by the size limit", j.DroppedSegments)
	add("states of sources", "more sources than the limit", engine.Sources)
	for rule, n := range engine.Overflow {
		add("subjects of rule "+rule, "counted together: more than the rule's limit", n)
	}
	for rule, n := range engine.EvalErrors {
		add("evaluations of rule "+rule, "failed", n)
	}
	slices.SortStableFunc(out, func(a, b web.Loss) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why)) })
	return out
}

// cost returns the memory and CPU time of this process, or zero if /proc can't be read.
func cost() web.Cost {
	c, _, _ := status.CostOf(os.Getpid())
	return web.Cost{RSS: c.RSSBytes, CPU: time.Duration(c.CPUSeconds * float64(time.Second))}
}

// pageDiagnoses provides the Diagnoses of the node to the web page: the worker's, and runs by hand.
// It reads the details of a run from its checkpoint.
type pageDiagnoses struct {
	stateDir string
	worker   *worker.Worker

	mu   sync.Mutex
	read map[string]readRun // by the path of the checkpoint
}

// readRun is a run as read from its checkpoint, with the file's size and modification time.
type readRun struct {
	size    int64
	changed time.Time
	run     web.Diagnosis
}

// candidate is a Diagnosis that list may return.
type candidate struct {
	dir    string
	id     string
	at     time.Time
	listed *worker.Listed // nil for a run by hand
}

// list returns the newest Diagnoses, at most the given number, and how many exist.
func (d *pageDiagnoses) list(most int) (out []web.Diagnosis, all int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	agent, byHand := RunsDir(d.stateDir), runsByHandDir(d.stateDir)
	var found []candidate
	listed := d.worker.List()
	for i := range listed {
		found = append(found, candidate{agent, listed[i].ID, listed[i].Taken, &listed[i]})
	}
	ids, err := runner.SavedIDs(worker.Checkpoints(byHand))
	if err != nil {
		return nil, 0, err
	}
	for _, id := range ids {
		if info, err := os.Stat(runner.SavedPath(worker.Checkpoints(byHand), id)); err == nil {
			found = append(found, candidate{byHand, id, info.ModTime(), nil})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return b.at.Compare(a.at) })
	kept := map[string]readRun{}
	for i := range found[:min(len(found), most)] {
		out = append(out, d.diagnosis(&found[i], kept))
	}
	d.read = kept // drops the runs that are no longer shown
	return out, len(found), nil
}

// diagnosis returns a Diagnosis. It reads its checkpoint only if that has changed since the last
// time.
func (d *pageDiagnoses) diagnosis(c *candidate, kept map[string]readRun) web.Diagnosis {
	path := runner.SavedPath(worker.Checkpoints(c.dir), c.id)
	out := web.Diagnosis{ID: c.id, Name: c.id}
	if info, err := os.Stat(path); err == nil {
		known, ok := d.read[path]
		if !ok || known.size != info.Size() || !known.changed.Equal(info.ModTime()) {
			known = readRun{info.Size(), info.ModTime(), readRunOf(c)}
		}
		kept[path] = known
		out = known.run
	}
	l := c.listed
	if l == nil {
		return out
	}
	out.Name, out.Trigger, out.OperationSet, out.Subject = l.Name, l.Trigger, l.OperationSet, l.Subject
	if out.Started.IsZero() { // it has not started, or was refused
		out.Started, out.Phase, out.Ended = l.Taken, string(l.Phase), l.Ended
		out.Message = strings.TrimSuffix(l.Reason+": "+l.Message, ": ")
	}
	return out
}

func readRunOf(c *candidate) web.Diagnosis {
	v, err := ReadDiagnosis(c.dir, c.id)
	if err != nil {
		return web.Diagnosis{ID: c.id, Name: c.id, Phase: "Unreadable", Message: err.Error(), Started: c.at}
	}
	return onPage(v)
}

func onPage(v *Diagnosis) web.Diagnosis {
	rep := v.Report
	d := web.Diagnosis{
		ID: rep.ID, Name: rep.ID, Subject: v.Parameters["subject"], Phase: string(rep.Phase), Started: rep.Started, Ended: rep.Ended,
		Graph: v.Graph != nil && v.Graph.Len() > 1,
	}
	switch {
	case rep.Verdict != nil:
		d.Cause = &web.Cause{Reason: rep.Verdict.Reason, Message: rep.Verdict.Message}
	case rep.Phase == v1alpha1.PhaseSucceeded:
		d.Message = "No verdict: no operation on the path checks for a cause."
	case rep.Phase == v1alpha1.PhaseFailed:
		if rep.Reason == v1alpha1.ReasonNoPathSucceeded {
			d.Outcome = "NoCauseFound"
		}
		d.Message = "No verdict: " + strings.TrimPrefix(v.NoVerdict(), "none: ") + "."
	case rep.Waiting != nil:
		d.Message = "Waiting: " + rep.Waiting.Reason + ": " + rep.Waiting.Message
	case rep.Phase == v1alpha1.PhaseRunning:
		d.Message = "Running, or interrupted."
	default:
		d.Message = rep.Message
	}
	if rep.Phase == v1alpha1.PhaseSucceeded {
		d.Path = PathText(v.Graph, rep.Path)
	}
	for _, e := range rep.Excluded() {
		d.Excluded = append(d.Excluded, web.Cause{Reason: e.Reason, Message: e.Message})
	}
	for i := range rep.Records {
		rec := &rep.Records[i]
		d.Steps = append(d.Steps, web.Step{
			ID: rec.ID, Operation: rec.Operation, Effect: string(v.Effects[rec.ID]), Result: StateWord(rec), Text: Finding(rec), Took: rec.Duration,
			OnPath: slices.Contains(rep.Path, rec.ID),
		})
		if rec.Repairs {
			d.Repairs = append(d.Repairs, strings.TrimSuffix(rec.Operation+": "+StateWord(rec)+": "+rec.Message, ": "))
		}
	}
	for i := range v.Artifacts {
		a := &v.Artifacts[i]
		d.Files = append(d.Files, v.Path(a)+" ("+display.Bytes(a.Size)+")")
	}
	return d
}

func (d *pageDiagnoses) drawing(id string) ([]byte, error) {
	for _, dir := range RunsDirs(d.stateDir) {
		ids, err := runner.SavedIDs(worker.Checkpoints(dir))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			continue
		}
		v, err := ReadDiagnosis(dir, id)
		if err != nil {
			return nil, err
		}
		return draw.SVG(v.Drawing("")), nil
	}
	return nil, fs.ErrNotExist
}

// forget releases the runs that were read.
func (d *pageDiagnoses) forget() {
	if !d.mu.TryLock() { // list is running, perhaps on a disk that hangs, and replaces them
		return
	}
	defer d.mu.Unlock()
	d.read = nil
}
