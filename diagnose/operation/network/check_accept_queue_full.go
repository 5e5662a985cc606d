package network

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// lookEvery is the sampling interval for short-lived states. It is long enough for an application
// that accepts connections to empty its queue.
const lookEvery = 50 * time.Millisecond

// fullLooks is the number of consecutive samples with a full queue after which it is reported
// before the window is over.
const fullLooks = 5

func CheckAcceptQueueFull(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-accept-queue-full",
		Doc: "Checks whether the accept queue of a listener is full. Verdict AcceptQueueFull, which names the process: the queue is full, or was at any " +
			"sample during window. The process does not call accept often enough, and the kernel drops connections. The window ends early if the queue " +
			"is full at every sample.",
		Effect:     operation.Check,
		Parameters: portRequired(targetParameters(windowParameter("1s"))),
		Results: results(
			operation.Result{Name: "queue", Doc: "connections that waited to be accepted, at the maximum"},
			operation.Result{Name: "queueMax", Doc: "maximum length of the accept queue; the kernel admits one more"},
			operation.Result{Name: "ownerPID", Doc: "process with the listener"},
			operation.Result{Name: "ownerComm", Doc: "its name"},
			operation.Result{Name: "overflows", Doc: "connections that met a full accept queue, in the whole namespace, during window"},
		),
		Run: inspect(h, findTarget, func(ctx context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			w, err := watchQueue(h, ctx, p, call.Parameters)
			if err != nil {
				return nil, err
			}
			text := w.report(r)
			switch {
			case w.looks == w.absent:
				return nil, operation.RefutedBy("AcceptQueueNotFull", "nothing listens at %s in %s", where(call.Parameters), p)
			case w.full > 0:
				return operation.VerdictOf("AcceptQueueFull", "%s (full in %d of %d samples in %s)%s", text, w.full, w.looks, w.took, w.overflowText()), nil
			case w.overflows > 0 && w.listeners == 1:
				// It happened between two samples, and there is no other listener that could have
				// caused it.
				return operation.VerdictOf("AcceptQueueFull", "%s, not full in any of %d samples in %s%s", text, w.looks, w.took, w.overflowText()), nil
			}
			return nil, operation.RefutedBy("AcceptQueueNotFull", "%s at most, in %d samples in %s%s", text, w.looks, w.took, w.overflowText())
		}),
	}
}

// queueWatch has the observations of a listener's queue during a window.
type queueWatch struct {
	where               string
	fullest             netlook.Socket
	owner               owner
	looks, full, absent int
	listeners           int // sockets that listen in the namespace
	overflows           uint64
	overflowsErr        error
	took                time.Duration
}

// watchQueue samples the listener of an address and port during the window.
func watchQueue(h operation.Host, ctx context.Context, p *place, v operation.Values) (*queueWatch, error) {
	view, err := open(h, p)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	at := at(v)
	began, window := time.Now(), v.Duration("window")
	before, beforeErr := h.FS.NetCounters(p.pid)
	w := &queueWatch{where: where(v)}
	for {
		present, full := false, false
		if _, err := view.Sockets(1<<netlook.Listen, at.Port(), false, func(s *netlook.Socket) {
			if at.Addr().IsValid() && !s.Takes(at) {
				return
			}
			if !present && w.looks == w.absent || s.Fuller(&w.fullest) {
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
		if time.Since(began) >= window || w.full == w.looks && w.full >= fullLooks {
			break
		}
		if err := operation.Pause(ctx, lookEvery); err != nil {
			return nil, err
		}
	}
	w.took = time.Since(began).Round(time.Millisecond)
	after, err := h.FS.NetCounters(p.pid)
	w.overflows, w.overflowsErr = grew(before, after)[listenOverflows], cmp.Or(beforeErr, err)
	if _, err := view.Sockets(1<<netlook.Listen, 0, false, func(*netlook.Socket) { w.listeners++ }); err != nil {
		return nil, err
	}
	if w.looks > w.absent {
		owners, _ := owners(h, ctx, p, map[uint32]bool{w.fullest.Inode: true}, nil)
		w.owner = owners[w.fullest.Inode]
	}
	return w, nil
}

// report stores the results, and returns a description of the queue.
func (w *queueWatch) report(r *operation.Finding) string {
	if w.looks == w.absent {
		return ""
	}
	r.Uint("queue", uint64(w.fullest.RQueue))
	r.Uint("queueMax", uint64(w.fullest.WQueue))
	w.owner.report(r)
	if w.overflowsErr != nil {
		r.Note("can't read listener counters: %v", w.overflowsErr)
	} else {
		r.Uint("overflows", w.overflows)
	}
	return fmt.Sprintf("queue %d/%d on %s, owner %s", w.fullest.RQueue, w.fullest.WQueue, w.where, w.owner)
}

func (w *queueWatch) overflowText() string {
	if w.overflowsErr != nil {
		return "; unknown how many connections met a full queue"
	}
	return fmt.Sprintf("; %d connections met a full queue in that namespace", w.overflows)
}
