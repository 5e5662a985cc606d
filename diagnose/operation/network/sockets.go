package network

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func Sockets(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "sockets",
		Doc: "Lists the TCP sockets of an address and port, or of a whole network namespace: listeners, accept queue usage, connections by state, " +
			"retransmissions, and drops by listeners during window. With podUID it inspects only that pod. Artifact sockets.txt has each socket.",
		Effect:     operation.Collect,
		TenantSafe: true,
		Parameters: targetParameters(windowParameter("1s")),
		Results: results(
			operation.Result{Name: "listening", Doc: "true: a socket listens at the address and port; not set without a port"},
			operation.Result{Name: "listener", Doc: "address and port of the listener"},
			operation.Result{Name: "queue", Doc: "connections that wait to be accepted"},
			operation.Result{Name: "queueMax", Doc: "maximum length of the accept queue; the kernel admits one more"},
			operation.Result{Name: "ownerPID", Doc: "process with the listener"},
			operation.Result{Name: "ownerComm", Doc: "its name"},
			operation.Result{Name: "listeners", Doc: "all listeners with queue and process, at most 8"},
			operation.Result{Name: "states", Doc: "sockets by state"},
			operation.Result{Name: "synReceived", Doc: "incomplete handshakes"},
			operation.Result{Name: "retransmitting", Doc: "connections with a retransmitted segment that is not yet acknowledged"},
			operation.Result{Name: "retransmits", Doc: "segments these connections retransmitted in their lifetime"},
			operation.Result{Name: "unacked", Doc: "their unacknowledged segments"},
			operation.Result{Name: "maxRTO", Doc: "longest retransmission timeout among them"},
			operation.Result{Name: "overflows", Doc: "connections that met a full accept queue, in the whole namespace, during window"},
			operation.Result{Name: "drops", Doc: "SYNs and ACKs dropped by listeners for any reason, likewise"},
		),
		Run: inspect(h, findOwnTarget, func(ctx context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			if shared := p.pod != "" && shared(h, p); shared {
				r.Note("the pod shares its network: what its listeners dropped can't be distinguished from the others'")
			} else if grew, _, err := growth(h, ctx, p, call.Parameters.Duration("window"), func(map[string]uint64) bool { return false }); err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				r.Note("can't read listener counters: %v", err)
			} else {
				r.Uint("overflows", grew[listenOverflows])
				r.Uint("drops", grew[listenDrops])
			}
			s, err := sockets(h, ctx, p, call.Parameters, true)
			if err != nil {
				return nil, err
			}
			s.report(r)
			err = r.Artifact(call, "sockets.txt", s.write)
			return nil, err
		}),
	}
}

// socketTable has the sockets of a namespace, or of one of its ports.
type socketTable struct {
	port      uint16
	list      []netlook.Socket
	owners    map[uint32]owner
	listening *netlook.Socket // listener at the address and port with the fullest queue
	whole     bool            // nothing is left out
	searched  bool            // all descriptors were searched for owners
	hidden    int             // sockets that do not belong to the pod
	pod       string
}

// sockets lists the sockets of a port, or all, with the processes of listeners and of accepted
// connections. With confine, it names only processes of the place's pod; if the pod shares the
// namespace with others, it lists only the pod's sockets.
func sockets(h operation.Host, ctx context.Context, p *place, v operation.Values, confine bool) (*socketTable, error) {
	view, err := open(h, p)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	at := at(v)
	t := &socketTable{port: at.Port()}
	inodes := map[uint32]bool{}
	t.whole, err = view.Sockets(netlook.AllStates, at.Port(), true, func(s *netlook.Socket) {
		if at.Port() != 0 && s.State == netlook.Listen && at.Addr().IsValid() && !s.Takes(at) {
			return
		}
		if at.Addr().IsValid() && s.State != netlook.Listen && s.Local.Addr() != at.Addr() {
			return
		}
		t.list = append(t.list, *s)
		if s.Inode != 0 {
			inodes[s.Inode] = true
		}
	})
	if err != nil {
		return nil, err
	}
	var only func(int) bool
	confine = confine && p.pod != ""
	shared := confine && shared(h, p)
	if confine {
		only = inPod(h, p.pod) // a socket may have been passed to a process elsewhere
	}
	t.owners, t.searched = owners(h, ctx, p, inodes, only)
	if shared {
		all := len(t.list)
		t.list = slices.DeleteFunc(t.list, func(s netlook.Socket) bool { return t.owners[s.Inode].pid == 0 })
		t.hidden, t.pod = all-len(t.list), p.pod
	}
	if at.Port() != 0 {
		for i := range t.list {
			s := &t.list[i]
			if s.State == netlook.Listen && (t.listening == nil || s.Fuller(t.listening)) {
				t.listening = s
			}
		}
	}
	return t, nil
}

func (t *socketTable) report(r *operation.Finding) {
	if t.port != 0 {
		r.Bool("listening", t.listening != nil)
	}
	if l := t.listening; l != nil {
		r.Text("listener", l.Local.String())
		r.Uint("queue", uint64(l.RQueue))
		r.Uint("queueMax", uint64(l.WQueue))
		t.owners[l.Inode].report(r)
	}
	const shown = 8
	r.Text("listeners", display.List(t.listeners(), shown))
	states := map[netlook.State]uint64{}
	var unacked, retransmits, retransmitting uint64
	var rto time.Duration
	for i := range t.list {
		s := &t.list[i]
		states[s.State]++
		if s.State == netlook.Listen || !s.HasInfo {
			continue
		}
		unacked += uint64(s.Info.Unacked)
		retransmits += uint64(s.Info.Total_retrans)
		if s.Retransmits > 0 {
			retransmitting++
		}
		rto = max(rto, time.Duration(s.Info.Rto)*time.Microsecond)
	}
	r.Text("states", stateText(states))
	r.Uint("synReceived", states[netlook.SynRecv])
	r.Uint("retransmitting", retransmitting)
	r.Uint("retransmits", retransmits)
	r.Uint("unacked", unacked)
	if rto > 0 {
		r.Text("maxRTO", rto.String())
	}
	if !t.whole {
		r.Note("not all sockets are listed")
	}
	if !t.searched {
		r.Note("not all descriptors were searched for the sockets' processes")
	}
	if t.hidden > 0 {
		r.Note("%d sockets of the shared namespace are omitted: they do not belong to processes of pod %s", t.hidden, t.pod)
	}
}

// listeners describes the listeners in the table, each once.
func (t *socketTable) listeners() []string {
	var out []string
	for i := range t.list {
		if s := &t.list[i]; s.State == netlook.Listen {
			text := fmt.Sprintf("%s %d/%d %s", s.Local, s.RQueue, s.WQueue, t.owners[s.Inode])
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

func stateText(states map[netlook.State]uint64) string {
	var out []string
	for state := range netlook.State(32) {
		if n := states[state]; n > 0 {
			out = append(out, fmt.Sprintf("%s %d", state, n))
		}
	}
	return strings.Join(out, ", ")
}

// write writes the table, with one socket per line.
func (t *socketTable) write(w *operation.Page) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := &operation.Page{Writer: tab}
	rows.Printf("STATE\tRECV-Q\tSEND-Q\tLOCAL\tPEER\tPROCESS\tRETRANS\tUNACKED\tRTO\tRTT\n")
	for i := range t.list {
		s := &t.list[i]
		owner := "-"
		if o, ok := t.owners[s.Inode]; ok {
			owner = o.String()
		}
		info := "-\t-\t-\t-"
		if s.HasInfo && s.State != netlook.Listen {
			info = fmt.Sprintf("%d/%d\t%d\t%s\t%s", s.Retransmits, s.Info.Total_retrans, s.Info.Unacked,
				time.Duration(s.Info.Rto)*time.Microsecond, time.Duration(s.Info.Rtt)*time.Microsecond)
		}
		rows.Printf("%s\t%d\t%d\t%s\t%s\t%s\t%s\n", s.State, s.RQueue, s.WQueue, s.Local, s.Remote, owner, info)
	}
	_ = tab.Flush() // w keeps the error
}
