package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

// state returns the state of the subject in a few words.
func (b *builder) state() string {
	if b.in.Subject.Kind == KindNode {
		return b.nodeState()
	}
	var parts []string
	if text := b.probes(); text != "" {
		parts = append(parts, text)
	}
	for _, c := range b.containers {
		text := b.containerState(c)
		if len(b.containers) > 1 {
			text = c.Name + " " + text
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 && b.in.Subject.Phase != "" {
		parts = append(parts, strings.ToLower(b.in.Subject.Phase))
	}
	if len(parts) == 0 {
		return "its status is unknown"
	}
	if n := b.in.Subject.Node; n != "" {
		parts = append(parts, "on node "+n)
	}
	return strings.Join(parts, "; ")
}

// probes describes the progress of failing probes: "liveness 2 of 3 towards restart (next in 4s)".
func (b *builder) probes() string {
	var latest []*Problem
	for _, p := range b.problems {
		if p.State != "" && (p.Lasts || p.From == FromAPI && b.in.Now.Sub(p.Last) < time.Minute) {
			latest = append(latest, p)
		}
	}
	slices.SortStableFunc(latest, func(x, y *Problem) int { return y.Last.Compare(x.Last) })
	var parts []string
	kinds := map[string]bool{}
	for _, p := range latest {
		kind, _, _ := strings.Cut(p.State, " ")
		if kinds[p.Container+" "+kind] {
			continue // the same probe by another rule, or earlier
		}
		kinds[p.Container+" "+kind] = true
		text := b.text(p.State)
		if b.in.Subject.Container == "" && p.Container != "" {
			text = b.text(p.Container) + " " + text
		}
		if in := p.NextProbe.Sub(b.in.Now); in > 0 {
			text += fmt.Sprintf(" (next probe in %s)", in.Round(time.Second))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts[:min(len(parts), 3)], ", ")
}

func (b *builder) containerState(c *Container) string {
	var text string
	switch {
	case c.Waiting != "":
		text = "waiting: " + b.text(c.Waiting)
	case c.Ended != nil:
		text = "ended at " + b.clock(c.Ended.At) + " " + b.how(c.Ended)
	case c.Running && c.Ready:
		text = "running since " + b.clock(c.Since) + ", ready"
	case c.Running:
		text = "running since " + b.clock(c.Since) + ", not ready"
	default:
		text = "state unknown"
	}
	if c.Restarts > 0 {
		text += fmt.Sprintf(", restarted %s", times(c.Restarts))
		if c.Before != nil {
			text += ", last ended at " + b.clock(c.Before.At) + " " + b.how(c.Before)
		}
	}
	return text
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (b *builder) nodeState() string {
	bad, unknown, lasting := 0, 0, 0
	isReady := ""
	for _, c := range b.in.Conditions {
		switch {
		case c.Type == ready && c.Status == problem.True:
			isReady = "Ready, "
		case c.Type == ready:
			isReady = "not Ready, "
		case c.Status == problem.True:
			bad++
		case c.Status == problem.Unknown:
			unknown++
		}
	}
	for _, p := range b.problems {
		if p.Lasts {
			lasting++
		}
	}
	return fmt.Sprintf("%sconditions True: %d, Unknown: %d; problems in the last %s: %d (lasting: %d)", isReady, bad, unknown, display.Exact(b.in.Since), len(b.problems), lasting)
}
