package pods

import (
	"sync"
	"time"
)

// gone remembers deleted pods, for a while and up to a number.
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

func (g *gone) add(uids []string, p Pod, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	if len(g.queue) == g.bound {
		g.drop()
	}
	l := &leaving{pod: p, uids: uids, at: now}
	g.queue = append(g.queue, l)
	for _, uid := range uids {
		g.byUID[uid] = l
	}
}

func (g *gone) find(uid string, now time.Time) (Pod, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	l := g.byUID[uid]
	if l == nil {
		return Pod{}, false
	}
	return l.pod, true
}

func (g *gone) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}

// forget drops the pods whose time is over.
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
		if g.byUID[uid] == l { // not one that was deleted again since
			delete(g.byUID, uid)
		}
	}
}
