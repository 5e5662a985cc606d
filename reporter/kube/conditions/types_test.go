package conditions

import (
	"slices"
	"testing"

	"github.com/kernosis/kernosis/detector/problem"
)

// Types in the Lease of an earlier agent that this agent does not have are removed; until then
// they stay listed.
func TestRetiredTypesAreRemoved(t *testing.T) {
	server := cluster.Server(t)
	client, node := server.Client(), server.Node(t)
	for _, c := range []string{"Old", "Kept"} {
		overwrite(t, client, node, FieldManager, `{"type":"`+c+`","status":"True","reason":"Earlier"}`)
	}
	overwrite(t, client, node, "another", `{"type":"Theirs","status":"True","reason":"Other"}`)
	p := start(t, server, func(c *Config) { c.Node = node })
	p.Retire([]string{"Old", "Kept", "Theirs", "Ready", "no type"})
	if got := p.Types(); !slices.Equal(got, []string{"Kept", "Old", "Theirs"}) {
		t.Errorf("before the detector has spoken: %q", got)
	}
	p.set(cond("Kept", problem.False, "Fine"))
	if got := p.Types(); !slices.Contains(got, "Old") && p.status("Old") != nil {
		t.Errorf("Old is there, and not listed: %q", got)
	}
	p.waitFor("Old is removed", func() bool { return p.status("Old") == nil })
	p.waitStatus(cond("Kept", problem.False, "Fine"))
	p.waitFor("what is gone is not listed", func() bool { return slices.Equal(p.Types(), []string{"Kept"}) })
	if p.status("Ready") == nil || p.status("Theirs") == nil {
		t.Error("a condition of another client was removed")
	}
}

// Types of an earlier agent that arrive late do not affect conditions that are set.
func TestRetireOfATypeThatIsSet(t *testing.T) {
	p := start(t, cluster.Server(t), nil)
	p.set(cond("A", problem.True, "Broken"))
	p.waitStatus(cond("A", problem.True, "Broken"))
	p.Retire([]string{"A", "B"})
	p.waitFor("B is not there and forgotten", func() bool { return slices.Equal(p.Types(), []string{"A"}) })
	p.waitStatus(cond("A", problem.True, "Broken"))
}
