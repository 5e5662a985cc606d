package inject

import (
	"context"
	"fmt"
	"time"
)

// probePeriod is the time between probes. Kubelet's is 10 s, which is too long for a drill.
const probePeriod = time.Second

func probeFaults() []spec {
	const how = " A prober like kubelet's, in a network namespace of its own, probes over a veth pair; " +
		"at the end the target answers."
	faults := []Fault{
		{Name: string(ProbeRefused), Summary: "connection refused", Does: "probes a port without a listener."},
		{Name: string(ProbeTimeout), Summary: "no answer to the SYN", Does: "probes an unused address that has a neighbour entry."},
		{Name: string(ProbeReset), Summary: "connection reset by the target", Does: "probes a server that reads each request and resets the connection."},
		{Name: string(ProbeSilent), Summary: "connected, but no answer", Does: "probes a server that reads each request and never answers."},
		{Name: string(ProbeSlow), Summary: "an answer that is not complete in time", Does: "probes a server that never completes its answers."},
		{Name: string(ProbeQueueFull), Summary: "the listener's accept queue is full", Does: "probes a server that never accepts and whose accept queue is full."},
		{Name: string(ProbeNoRoute), Summary: "no route to the target", Does: "probes an address the prober has no route to."},
		{Name: string(ProbeDeadNeighbour), Summary: "no neighbour answers for the target", Does: "probes an unused address of the prober's subnet."},
	}
	var specs []spec
	for _, f := range faults {
		f.Does += how
		f.DefaultCount = 3 // as kubelet's failureThreshold
		specs = append(specs, spec{Fault: f, requires: []func() error{requireNetns}, do: runProbe})
	}
	return specs
}

func runProbe(ctx context.Context, r *run) (err error) {
	rec, err := openRecord(r.env.StateDir, r.Fault, r.limit)
	if err != nil {
		return err
	}
	defer closing(&err, r, rec.undo)
	p := &Probe{Kind: ProbeKind(r.Fault)}
	t, err := p.Start(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, r, p.Close)
	r.Subject = t.Addr.String()
	r.say("target %s of kn-target[%d] (netns %d), prober kn-prober[%d] (netns %d)",
		t.Addr, t.TargetPID, t.TargetNetns, t.ProberPID, t.Netns)
	if length, limit := p.Queue(); length > 0 {
		r.note("accept queue %d/%d", length, limit)
	}
	if err := writeTarget(rec, r.env.TargetsDir, r.Fault, t); err != nil {
		return err
	}
	if r.env.WaitTarget != nil {
		if err := r.env.WaitTarget(ctx, t.Netns, t.Addr); err != nil {
			r.note("no running kernosis watches this target: %v", err)
		}
	}
	if err := attempts(ctx, r, p); err != nil {
		return err
	}
	if err := p.Heal(ctx); err != nil {
		return err
	}
	r.say("%s answers: probe succeeded", t.Addr)
	return nil
}

// attempts probes r.want times, a period apart, and returns an error unless each probe
// fails as its kind has to.
func attempts(ctx context.Context, r *run, p *Probe) error {
	period := time.NewTicker(probePeriod)
	defer period.Stop()
	for i := range r.want {
		if i > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-period.C:
			}
		}
		a, err := p.Attempt(ctx)
		if err != nil {
			return err
		}
		if a.Outcome != p.Kind.Expect() {
			return fmt.Errorf("probe %d of %s: %s, wanted %s: %s", i+1, r.Subject, a.Outcome, p.Kind.Expect(), a.Error)
		}
		r.Count++
		r.say("probe %d failed after %s: %s", i+1, a.Took.Round(time.Millisecond), a.Error)
	}
	r.note("%d probes failed: %s", r.Count, p.Kind.Expect())
	return nil
}
