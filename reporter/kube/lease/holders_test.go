package lease

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// An agent is gone once it no longer renews while this one does, and not before. While the API
// server does not answer, no agent is gone.
func TestGone(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	holder := func(name string) func(*Config) {
		return func(c *Config) { c.Duration, c.Holder = time.Second, func() string { return name } }
	}
	code, config, _ := between(t, server)
	a := start(t, server, func(c *Config) { holder("n/a")(c); c.Client = kubetest.Clientset(t, config) })
	a.waitRenewals(1)
	b := start(t, server, func(c *Config) { holder("n/b")(c); c.Node, c.Namespace = a.node, a.namespace })
	b.waitRenewals(1)
	// Whichever of the two has the Lease, renewals of both are seen.
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if a.Gone("n/b") || b.Gone("n/a") {
			t.Fatal("one that lives is gone")
		}
	}
	if got := holdersIn(a.lease()); len(got) != 2 {
		t.Errorf("listed: %v", got)
	}
	// An agent that was never seen gets its time from the first call on.
	asked := time.Now()
	a.waitFor("a stranger is gone", func() bool { return a.Gone("n/x") })
	if took := time.Since(asked); took < 1250*time.Millisecond {
		t.Errorf("after %s", took)
	}
	code.Store(http.StatusServiceUnavailable)
	a.waitFor("it is cut off", func() bool { return a.Stats().Renewals[conditions.ServerError] > 0 })
	_ = b.stop()
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if a.Gone("n/b") {
			t.Fatal("gone, as far as an agent knows that is cut off")
		}
	}
	code.Store(0)
	answers := time.Now()
	a.waitFor("it is gone", func() bool { return a.Gone("n/b") })
	t.Logf("%s after the API server answers again", time.Since(answers))
	a.waitFor("the Lease has it no more", func() bool { return !strings.Contains(a.lease().Annotations[AnnotationHolders], "n/b") })
	if (*Keeper)(nil).Gone("n/x") {
		t.Error("without a Lease somebody is gone")
	}
}

// Many agents of one node, as when an agent is restarted again and again without its folder,
// don't make the Lease grow.
func TestHoldersAreBounded(t *testing.T) {
	server := cluster.Server(t)
	node, namespace := server.Node(t), server.Namespace(t)
	var last *rig
	for i := range 2 * maxHolders {
		last = start(t, server, func(c *Config) {
			c.Node, c.Namespace, c.Holder = node, namespace, func() string { return "n/" + string(rune('a'+i)) }
		})
		last.waitRenewals(1)
		_ = last.stop()
	}
	l := last.lease()
	if got := holdersIn(l); len(got) != maxHolders || got["n/p"] == "" {
		t.Errorf("%d: %s", len(got), l.Annotations[AnnotationHolders])
	}
}
