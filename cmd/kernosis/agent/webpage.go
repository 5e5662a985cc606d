package agent

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/detector/problem"
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

// shownNode returns the node's name for the page.
func (c *Config) shownNode() string {
	if c.cluster != nil {
		return c.cluster.node
	}
	node, _, err := c.Kube.ResolveNodeName(c.origins)
	if err != nil {
		return "localhost"
	}
	return node
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
	self, err := procfs.Self()
	if err != nil {
		return web.Cost{}
	}
	stat, err := self.Stat()
	if err != nil {
		return web.Cost{}
	}
	return web.Cost{RSS: uint64(stat.ResidentMemory()), CPU: time.Duration(stat.CPUTime() * float64(time.Second))}
}
