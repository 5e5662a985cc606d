package operation

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
)

// Sockets collects the TCP sockets of a target in its network namespace.
func Sockets(h Host) Builtin {
	return Builtin{
		Name: "sockets",
		Doc: "Lists the TCP sockets of an address and port, or of a whole network namespace: who listens, how full the " +
			"accept queue is, connections by state, retransmissions, and what the listeners dropped meanwhile. With podUID " +
			"it looks into that pod alone. The artifact sockets.txt has each socket.",
		Effect:     Collect,
		TenantSafe: true,
		Parameters: netTargetParameters(netWindowParameter("1s")),
		Results: netResults(
			Result{"listening", "true: a socket listens at the address and port; not set without a port"},
			Result{"listener", "its own address and port"},
			Result{"queue", "connections that wait to be accepted"},
			Result{"queueMax", "how long the accept queue may be; the kernel lets one more in"},
			Result{"ownerPID", "process that has the listener"},
			Result{"ownerComm", "name of that process"},
			Result{"listeners", "all listeners with their queue and process, at most 8"},
			Result{"states", "sockets by state"},
			Result{"synReceived", "handshakes that are not complete"},
			Result{"retransmitting", "connections of which a segment was sent again and is not acknowledged yet"},
			Result{"retransmits", "segments sent again by these connections in their life"},
			Result{"unacked", "segments sent and not acknowledged, of all these connections"},
			Result{"maxRTO", "the longest time-out of a retransmission among them"},
			Result{"overflows", "accept queues that were full when a connection came, in the whole namespace, during the window"},
			Result{"drops", "SYNs and ACKs that listeners dropped for any reason, likewise"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.netTarget(call.Parameters, true)
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(&p)
			if shared := p.pod != "" && h.netShared(&p); shared {
				r.note("the pod shares its network: what its listeners dropped can't be distinguished from the others'")
			} else if n, err := h.netListenStats(ctx, &p, call.Parameters.Duration("window")); err != nil {
				if ctx.Err() != nil {
					return Output{}, err
				}
				r.note("no counters of the listeners: %v", err)
			} else {
				r.uint("overflows", n.Overflows)
				r.uint("drops", n.Drops)
			}
			s, err := h.netSockets(ctx, &p, call.Parameters, true)
			if err != nil {
				return Output{}, err
			}
			s.report(r)
			err = r.artifact(call, "sockets.txt", func(w *page) { s.write(w) })
			return r.output(nil), err
		},
	}
}

// netSocketTable is what a namespace, or a port of it, has of sockets.
type netSocketTable struct {
	port      uint16
	list      []netlook.Socket
	owners    map[uint32]netOwner
	listening *netlook.Socket // the one of the address and port with the fullest queue
	whole     bool            // nothing is left out
	searched  bool            // all descriptors were searched for owners
	hidden    int             // sockets that are not the pod's
	pod       string
}

// netSockets lists the sockets of a port, or of all, with the processes of listeners and
// of accepted connections. Confined to a pod no process of others is named, and in a
// namespace that the pod shares with others only sockets of the pod's are listed.
func (h Host) netSockets(ctx context.Context, p *netPlace, v Values, confine bool) (*netSocketTable, error) {
	view, err := h.netOpen(p)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	at := netAt(v)
	t := &netSocketTable{port: at.Port()}
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
	shared := confine && h.netShared(p)
	if confine {
		only = h.netInPod(p.pod) // a socket may have been handed to a process elsewhere
	}
	t.owners, t.searched = h.netOwners(ctx, p, inodes, only)
	if shared {
		all := len(t.list)
		t.list = slices.DeleteFunc(t.list, func(s netlook.Socket) bool { return t.owners[s.Inode].pid == 0 })
		t.hidden, t.pod = all-len(t.list), p.pod
	}
	if at.Port() != 0 {
		for i := range t.list {
			s := &t.list[i]
			if s.State == netlook.Listen && (t.listening == nil ||
				int64(s.RQueue)-int64(s.WQueue) > int64(t.listening.RQueue)-int64(t.listening.WQueue)) {
				t.listening = s
			}
		}
	}
	return t, nil
}

func (t *netSocketTable) report(r *finding) {
	if t.port != 0 {
		r.text("listening", strconv.FormatBool(t.listening != nil))
	}
	if l := t.listening; l != nil {
		r.text("listener", l.Local.String())
		r.uint("queue", uint64(l.RQueue))
		r.uint("queueMax", uint64(l.WQueue))
		if o, ok := t.owners[l.Inode]; ok {
			r.uint("ownerPID", uint64(o.pid))
			r.text("ownerComm", o.comm)
		}
	}
	const shown = 8
	r.text("listeners", display.List(t.listeners(), shown))
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
	r.text("states", netStates(states))
	r.uint("synReceived", states[netlook.SynRecv])
	r.uint("retransmitting", retransmitting)
	r.uint("retransmits", retransmits)
	r.uint("unacked", unacked)
	if rto > 0 {
		r.text("maxRTO", rto.String())
	}
	if !t.whole {
		r.note("there are more sockets than are listed")
	}
	if !t.searched {
		r.note("not all descriptors were searched for the sockets' processes")
	}
	if t.hidden > 0 {
		r.note("%d sockets of the namespace, which others share, are not those of processes of pod %s, and left out", t.hidden, t.pod)
	}
}

// listeners are those of the table in words, each once.
func (t *netSocketTable) listeners() []string {
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

func netStates(states map[netlook.State]uint64) string {
	var out []string
	for state := range netlook.State(32) {
		if n := states[state]; n > 0 {
			out = append(out, fmt.Sprintf("%s %d", state, n))
		}
	}
	return strings.Join(out, ", ")
}

// write writes the table, a socket a line.
func (t *netSocketTable) write(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	netPrintf(tab, "STATE\tRECV-Q\tSEND-Q\tLOCAL\tPEER\tPROCESS\tRETRANS\tUNACKED\tRTO\tRTT\n")
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
		netPrintf(tab, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", s.State, s.RQueue, s.WQueue, s.Local, s.Remote, owner, info)
	}
	_ = tab.Flush() // w keeps the error
}

// netListenStats reads the counters twice, with the window between.
func (h Host) netListenStats(ctx context.Context, p *netPlace, window time.Duration) (hostfs.ListenStats, error) {
	before, err := h.FS.ListenStats(p.pid)
	if err != nil {
		return before, err
	}
	if err := pauseFor(ctx, window); err != nil {
		return before, err
	}
	after, err := h.FS.ListenStats(p.pid)
	// The process may have ended, and its number be that of one elsewhere.
	if inode, gone := h.FS.NetNS(p.pid); err == nil && (gone != nil || inode != p.inode) {
		return before, fmt.Errorf("process %d has left the network namespace", p.pid)
	}
	return hostfs.ListenStats{
		Overflows: netIncrease(before.Overflows, after.Overflows), Drops: netIncrease(before.Drops, after.Drops),
	}, err
}
