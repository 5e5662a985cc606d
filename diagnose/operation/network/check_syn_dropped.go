package network

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// counter is a kernel counter with its meaning.
type counter struct{ name, text string }

// listenerDrops returns the counters of packets that listeners dropped.
func listenerDrops() []counter {
	return []counter{
		{listenOverflows, "accept queue full"},
		{handshakesFull, "queue of handshakes full"},
		{listenDrops, "dropped by listeners for these and other reasons"},
	}
}

func CheckSYNDropped(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-syn-dropped",
		Doc: "Checks whether listeners drop SYNs, or the ACKs that end handshakes. Verdict SYNDropped: the counters of the target's network namespace, " +
			"which cover all its listeners, increase during window, which ends with the first drop. A client must try to connect meanwhile: it repeats a " +
			"SYN after 1 s, 3 s and 7 s.",
		Effect:     operation.Check,
		Parameters: portRequired(targetParameters(windowParameter("3s"))),
		Results: results(
			operation.Result{Name: "drops", Doc: "SYNs and ACKs dropped by listeners during window"},
			operation.Result{Name: "overflows", Doc: "those dropped because the accept queue was full"},
			operation.Result{Name: "synQueueFull", Doc: "those dropped because too many handshakes were in progress"},
			operation.Result{Name: "synReceived", Doc: "incomplete handshakes of the port"},
			operation.Result{Name: "queue", Doc: "connections that wait to be accepted at the port"},
			operation.Result{Name: "queueMax", Doc: "maximum length of that queue"},
		),
		Run: inspect(h, findTarget, func(ctx context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			// The first drop is enough.
			grew, window, err := growth(h, ctx, p, call.Parameters.Duration("window"), func(grew map[string]uint64) bool {
				return slices.ContainsFunc(listenerDrops(), func(c counter) bool { return grew[c.name] > 0 })
			})
			if err != nil {
				return nil, fmt.Errorf("counters of %s: %w", p, err)
			}
			t, err := sockets(h, ctx, p, call.Parameters, false)
			if err != nil {
				return nil, err
			}
			r.Uint("drops", grew[listenDrops])
			r.Uint("overflows", grew[listenOverflows])
			r.Uint("synQueueFull", grew[handshakesFull])
			half := uint64(0)
			for i := range t.list {
				if t.list[i].State == netlook.SynRecv {
					half++
				}
			}
			r.Uint("synReceived", half)
			at := fmt.Sprintf("nothing listens at %s", where(call.Parameters))
			if l := t.listening; l != nil {
				r.Uint("queue", uint64(l.RQueue))
				r.Uint("queueMax", uint64(l.WQueue))
				at = fmt.Sprintf("listener at %s: queue %d/%d, %d handshakes in progress, owner %s", l.Local, l.RQueue, l.WQueue, half, t.owners[l.Inode])
			}
			var dropped []string
			for _, c := range listenerDrops() {
				if n := grew[c.name]; n > 0 {
					dropped = append(dropped, fmt.Sprintf("%d %s", n, c.text))
				}
			}
			if len(dropped) == 0 {
				return nil, operation.RefutedBy("NoSYNDropped", "listeners of %s dropped nothing in %s; %s", p, window, at)
			}
			return operation.VerdictOf("SYNDropped", "in %s in %s: %s; %s", window, p, strings.Join(dropped, ", "), at), nil
		}),
	}
}
