package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/netlook"
)

// netCounter is a counter of the kernel and what it counts.
type netCounter struct{ name, text string }

// netListenerDrops are the counters by which listeners tell what they did not take.
func netListenerDrops() []netCounter {
	return []netCounter{
		{"TcpExt.ListenOverflows", "accept queue full"},
		{"TcpExt.TCPReqQFullDrop", "queue of handshakes full"},
		{"TcpExt.ListenDrops", "dropped by listeners for these and other reasons"},
	}
}

// CheckSYNDropped checks whether listeners drop connection attempts now.
func CheckSYNDropped(h Host) Builtin {
	return Builtin{
		Name: "check-syn-dropped",
		Doc: "Checks whether listeners of the target's network namespace dropped SYNs, or the ACKs that end handshakes, during " +
			"the window, which ends with the first of them, by the kernel's counters, which are of the whole namespace. Something has to try to connect " +
			"meanwhile: a client repeats a SYN after 1 s, 3 s and 7 s. The verdict is SYNDropped.",
		Effect:     Check,
		Parameters: netPortRequired(netTargetParameters(netWindowParameter("3s"))),
		Results: netResults(
			Result{"drops", "SYNs and ACKs that listeners dropped during the window"},
			Result{"overflows", "of these, because the accept queue was full"},
			Result{"synQueueFull", "of these, because there were too many handshakes under way"},
			Result{"synReceived", "handshakes of the port that are not complete"},
			Result{"queue", "connections that wait to be accepted at the port"},
			Result{"queueMax", "how long that queue may be"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.netTarget(call.Parameters, false)
			if err != nil {
				return Output{}, err
			}
			// The first that is dropped is enough.
			grew, window, err := h.netGrowth(ctx, &p, call.Parameters.Duration("window"), func(grew map[string]uint64) bool {
				return slices.ContainsFunc(netListenerDrops(), func(c netCounter) bool { return grew[c.name] > 0 })
			})
			if err != nil {
				return Output{}, fmt.Errorf("counters of %s: %w", &p, err)
			}
			t, err := h.netSockets(ctx, &p, call.Parameters, false)
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(&p)
			r.uint("drops", grew["TcpExt.ListenDrops"])
			r.uint("overflows", grew["TcpExt.ListenOverflows"])
			r.uint("synQueueFull", grew["TcpExt.TCPReqQFullDrop"])
			half := uint64(0)
			for i := range t.list {
				if t.list[i].State == netlook.SynRecv {
					half++
				}
			}
			r.uint("synReceived", half)
			at := fmt.Sprintf("nothing listens at %s", netWhere(call.Parameters))
			if l := t.listening; l != nil {
				r.uint("queue", uint64(l.RQueue))
				r.uint("queueMax", uint64(l.WQueue))
				at = fmt.Sprintf("listener at %s: queue %d/%d, %d handshakes under way, owner %s", l.Local, l.RQueue, l.WQueue, half, t.owners[l.Inode])
			}
			var dropped []string
			for _, c := range netListenerDrops() {
				if n := grew[c.name]; n > 0 {
					dropped = append(dropped, fmt.Sprintf("%d %s", n, c.text))
				}
			}
			if len(dropped) == 0 {
				return Output{}, refutedBy("NoSYNDropped", "listeners of %s dropped nothing in %s; %s", &p, window, at)
			}
			return r.output(verdictOf("SYNDropped", "in %s in %s: %s; %s", window, &p, strings.Join(dropped, ", "), at)), nil
		},
	}
}
