package conditions

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/detector/problem"
)

const theirs = `{"type":"KernelDeadlock","status":"False","reason":"KernelHasNoDeadlock","message":"says another"}`

func TestWhatOthersWriteOverIsRepaired(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, nil)
	r.set(deadlocked())
	r.waitStatus(deadlocked())
	r.waitAcked()
	overwrite(t, server.Client(), r.node, "somebody", theirs)
	r.waitFor("a flip", func() bool { return r.Stats().Flips == 1 })
	r.waitStatus(deadlocked())
	r.waitAcked()
	overwrite(t, server.Client(), r.node, "somebody", `{"$patch":"delete","type":"KernelDeadlock"}`)
	r.waitFor("a flip", func() bool { return r.Stats().Flips == 2 })
	r.waitStatus(deadlocked())
	r.waitAcked()
	if s := r.Stats(); s.Contested != 0 || s.Writes[Written] != 3 {
		t.Errorf("stats: %+v", s)
	}
}

func TestAContestedTypeIsLeftToTheOtherWhoIsNamed(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, nil)
	disk := cond("DiskStalled", problem.False, "NoDiskIsStalled")
	r.set(deadlocked(), disk)
	for range maxFlips {
		r.waitStatus(deadlocked())
		r.waitAcked()
		overwrite(t, server.Client(), r.node, "node-problem-detector", theirs)
		flips := r.Stats().Flips
		r.waitFor("the next flip or the end", func() bool {
			return r.Stats().Flips > flips || r.Stats().Contested > 0 || r.status("KernelDeadlock").Status == corev1.ConditionTrue
		})
	}
	r.waitFor("it is contested", func() bool { return r.status(Contested) != nil })
	c := r.status(Contested)
	if c.Status != corev1.ConditionTrue || c.Reason != reasonAnotherWriter || !strings.Contains(c.Message, "KernelDeadlock") || !strings.Contains(c.Message, "node-problem-detector") {
		t.Errorf("condition: %+v", c)
	}
	r.waitAcked()
	if c := r.status("KernelDeadlock"); c.Status != corev1.ConditionFalse {
		t.Errorf("it was not yielded: %+v", c)
	}
	// The other types are still ours, and the yielded one stays the other client's.
	disk.Reason, disk.Status = "DiskStalls", problem.True
	r.set(deadlocked(), disk)
	r.waitStatus(disk)
	if c := r.status("KernelDeadlock"); c.Status != corev1.ConditionFalse {
		t.Errorf("it was not yielded: %+v", c)
	}
	if s := r.Stats(); s.Flips != maxFlips || s.Contested != 1 || len(s.Yielded) != 1 || s.Yielded[0] != "KernelDeadlock" {
		t.Errorf("stats: %+v", s)
	}
}

func TestAContestEnds(t *testing.T) {
	server := cluster.Server(t)
	node := server.Node(t)
	p, err := New(Config{Client: server.Client(), Node: node, Coalesce: 10 * time.Millisecond, StartJitter: -1})
	if err != nil {
		t.Fatal(err)
	}
	p.yieldFor = 2 * time.Second
	r := &rig{t: t, server: server, node: node, Patcher: p}
	r.run()
	r.set(deadlocked())
	for range maxFlips {
		r.waitStatus(deadlocked())
		r.waitAcked()
		flips := r.Stats().Flips
		overwrite(t, server.Client(), node, "somebody", theirs)
		r.waitFor("a flip", func() bool { return r.Stats().Flips > flips })
	}
	r.waitFor("it is contested", func() bool { return r.Stats().Contested == 1 })
	r.waitStatus(deadlocked())
	r.waitFor("nothing is contested", func() bool { return r.status(Contested) == nil })
}

// The controller marks the conditions of a silent agent. When the agent returns, its own report
// wins, and that is not a contest.
func TestTheControllerIsNoContestant(t *testing.T) {
	server := cluster.Server(t)
	r := start(t, server, nil)
	r.set(deadlocked())
	for range maxFlips + 2 {
		r.waitStatus(deadlocked())
		r.waitAcked()
		writes := r.Stats().Writes[Written]
		overwrite(t, server.Client(), r.node, Controller, `{"type":"KernelDeadlock","status":"Unknown","reason":"AgentStatusUnknown","message":"x"}`)
		r.waitFor("a repair", func() bool { return r.Stats().Writes[Written] > writes })
	}
	r.waitStatus(deadlocked())
	if s := r.Stats(); s.Flips != 0 || s.Contested != 0 {
		t.Errorf("stats: %+v", s)
	}
}
