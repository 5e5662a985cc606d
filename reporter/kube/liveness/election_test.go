package liveness

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func (b *bench) leader() string {
	l, err := b.client.CoordinationV1().Leases(b.namespace).Get(context.Background(), leader.ElectionName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// elected returns an election that tolerates an API server that stalls for nearly as long as the
// lease lasts.
func elected(identity string, lasts time.Duration) leader.Election {
	return leader.Election{Enabled: true, Identity: identity, Lease: lasts, Renew: lasts / 5 * 4, Retry: 250 * time.Millisecond}
}

func TestSecondControllerTakesOver(t *testing.T) {
	testenv.OnlyInTestAll(t)
	// A clean shutdown releases the lease; a controller that was cut off keeps it until it
	// expires.
	for how, lasts := range map[string]time.Duration{"in order": time.Minute, "cut off": 15 * time.Second} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t)
			node := b.server.Node(t)
			a := b.agent(node, cond("A", problem.True, "Broken"))
			first := b.controlIn(elected("first", lasts), nil)
			b.waitFor("the first leads", func() bool { return b.leader() == "first" })
			second := b.controlIn(elected("second", lasts), nil)
			b.waitFor("the first has seen all", func() bool { return first.count(t, "kernosis_controller_nodes", "state", "reporting") == 1 })
			a.set(true)
			b.waitHas(node, "A", silentAs)
			if n := second.count(t, "kernosis_controller_writes_total"); n != 0 {
				t.Errorf("the second has written %v times", n)
			}
			a.set(false)
			b.waitHas(node, "A", "True Broken")
			if how == "in order" {
				if err := first.stop(); err != nil {
					t.Fatal(err)
				}
			} else {
				first.set(true)
				if err := <-first.ended; err == nil || !strings.Contains(err.Error(), "leader election lost") {
					t.Errorf("the first ended with %v", err)
				}
			}
			b.waitFor("the second leads", func() bool { return b.leader() == "second" })
			b.waitFor("the second has seen all", func() bool { return second.count(t, "kernosis_controller_nodes", "state", "reporting") == 1 })
			a.kill()
			b.waitHas(node, "A", silentAs)
			b.waitFor("the second has written once", func() bool {
				return second.count(t, "kernosis_controller_writes_total", "outcome", "written") == 1
			})
		})
	}
}
