package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
)

// netLookEvery is how often what changes by the moment is looked at: an application that
// accepts at all empties its queue in less.
const netLookEvery = 50 * time.Millisecond

// netFullLooks is how often in a row a queue has to be found full for that to be told
// before the window is over.
const netFullLooks = 5

// CheckAcceptQueueFull checks whether a listener's accept queue is full.
func CheckAcceptQueueFull(h Host) Builtin {
	return Builtin{
		Name: "check-accept-queue-full",
		Doc: "Checks whether the accept queue of a listener is full, or was at any look during the window, which ends early where it is at each: its process does " +
			"not call accept often enough, and the kernel drops connections. The verdict AcceptQueueFull names the process.",
		Effect:     Check,
		Parameters: netPortRequired(netTargetParameters(netWindowParameter("1s"))),
		Results: netResults(
			Result{"queue", "connections that waited to be accepted, at the fullest"},
			Result{"queueMax", "how long the accept queue may be; the kernel lets one more in"},
			Result{"ownerPID", "process that has the listener"},
			Result{"ownerComm", "name of that process"},
			Result{"overflows", "accept queues that were full when a connection came, in the whole namespace, during the window"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.netTarget(call.Parameters, false)
			if err != nil {
				return Output{}, err
			}
			w, err := h.netWatchQueue(ctx, &p, call.Parameters)
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(&p)
			text := w.report(r)
			switch {
			case w.looks == w.absent:
				return Output{}, refutedBy("AcceptQueueNotFull", "nothing listens at %s in %s", netWhere(call.Parameters), &p)
			case w.full > 0:
				return r.output(verdictOf("AcceptQueueFull", "%s (full at %d of %d looks in %s)%s", text, w.full, w.looks, w.took, w.overflowText())), nil
			case w.overflows.Overflows > 0 && w.listeners == 1:
				// Between two looks: no other listener can have had them.
				return r.output(verdictOf("AcceptQueueFull", "%s, never seen full at %d looks in %s%s", text, w.looks, w.took, w.overflowText())), nil
			}
			return Output{}, refutedBy("AcceptQueueNotFull", "%s at most, at %d looks in %s%s", text, w.looks, w.took, w.overflowText())
		},
	}
}

// netQueueWatch is what was seen of a listener's queue in a time.
type netQueueWatch struct {
	where               string
	fullest             netlook.Socket
	owner               netOwner
	looks, full, absent int
	listeners           int // sockets that listen in the namespace
	overflows           hostfs.ListenStats
	overflowsErr        error
	took                time.Duration
}

// netWatchQueue looks at the listener of an address and port again and again.
func (h Host) netWatchQueue(ctx context.Context, p *netPlace, v Values) (*netQueueWatch, error) {
	view, err := h.netOpen(p)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	at := netAt(v)
	began, window := time.Now(), v.Duration("window")
	before, err := h.FS.ListenStats(p.pid)
	w := &netQueueWatch{where: netWhere(v), overflowsErr: err}
	for {
		present, full := false, false
		if _, err := view.Sockets(1<<netlook.Listen, at.Port(), false, func(s *netlook.Socket) {
			if at.Addr().IsValid() && !s.Takes(at) {
				return
			}
			if !present && w.looks == w.absent || int64(s.RQueue)-int64(s.WQueue) > int64(w.fullest.RQueue)-int64(w.fullest.WQueue) {
				w.fullest = *s
			}
			present, full = true, full || s.RQueue > s.WQueue
		}); err != nil {
			return nil, err
		}
		w.looks++
		if !present {
			w.absent++
		}
		if full {
			w.full++
		}
		if time.Since(began) >= window || w.full == w.looks && w.full >= netFullLooks {
			break
		}
		if err := pauseFor(ctx, netLookEvery); err != nil {
			return nil, err
		}
	}
	w.took = time.Since(began).Round(time.Millisecond)
	if after, err := h.FS.ListenStats(p.pid); err == nil && w.overflowsErr == nil {
		w.overflows = hostfs.ListenStats{
			Overflows: netIncrease(before.Overflows, after.Overflows), Drops: netIncrease(before.Drops, after.Drops),
		}
	} else if err != nil {
		w.overflowsErr = err
	}
	if _, err := view.Sockets(1<<netlook.Listen, 0, false, func(*netlook.Socket) { w.listeners++ }); err != nil {
		return nil, err
	}
	if w.looks > w.absent {
		owners, _ := h.netOwners(ctx, p, map[uint32]bool{w.fullest.Inode: true}, nil)
		w.owner = owners[w.fullest.Inode]
	}
	return w, nil
}

// report keeps the results, and returns the queue in words.
func (w *netQueueWatch) report(r *finding) string {
	if w.looks == w.absent {
		return ""
	}
	r.uint("queue", uint64(w.fullest.RQueue))
	r.uint("queueMax", uint64(w.fullest.WQueue))
	if w.owner.pid != 0 {
		r.uint("ownerPID", uint64(w.owner.pid))
		r.text("ownerComm", w.owner.comm)
	}
	if w.overflowsErr != nil {
		r.note("no counters of the listeners: %v", w.overflowsErr)
	} else {
		r.uint("overflows", w.overflows.Overflows)
	}
	return fmt.Sprintf("queue %d/%d on %s, owner %s", w.fullest.RQueue, w.fullest.WQueue, w.where, w.owner)
}

func (w *netQueueWatch) overflowText() string {
	if w.overflowsErr != nil {
		return "; how many connections met a full queue is not known"
	}
	return fmt.Sprintf("; %d connections met a full queue in that namespace", w.overflows.Overflows)
}
