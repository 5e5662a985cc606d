package pods

import (
	"sync"
	"time"
)

// gone remembers deleted pods, for a limited time and up to a number.
type gone struct {
	remember time.Duration
	bound    int

	mu    sync.Mutex
	byUID map[string]*leaving
	queue []*leaving // oldest first
}

type leaving struct {
	pod  Pod
	uids []string
	at   time.Time
}

func newGone(remember time.Duration, bound int) *gone {
	return &gone{remember: remember, bound: bound, byUID: map[string]*leaving{}}
}

// add remembers a pod by its own UID, which comes first in uids, and by the UIDs that it claims.
// A claimed UID never replaces another pod's.
func (g *gone) add(uids []string, p Pod, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	if len(g.queue) == g.bound {
		g.drop()
	}
	l := &leaving{pod: p, uids: uids, at: now}
	g.queue = append(g.queue, l)
	for i, uid := range uids {
		if i == 0 || g.byUID[uid] == nil {
			g.byUID[uid] = l
		}
	}
}

// find returns the pod with a UID, and whether the UID is the pod's own.
func (g *gone) find(uid string, now time.Time) (p Pod, own, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	l := g.byUID[uid]
	if l == nil {
		return Pod{}, false, false
	}
	return l.pod, l.uids[0] == uid, true
}

// forget drops the pods that have been remembered long enough.
func (g *gone) forget(now time.Time) {
	for len(g.queue) > 0 && now.Sub(g.queue[0].at) >= g.remember {
		g.drop()
	}
}

func (g *gone) drop() {
	l := g.queue[0]
	g.queue[0] = nil
	g.queue = g.queue[1:]
	for _, uid := range l.uids {
		if g.byUID[uid] == l { // unless another pod deleted later has the UID
			delete(g.byUID, uid)
		}
	}
}
