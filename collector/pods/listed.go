package pods

import (
	"context"
	"sync"
	"time"
)

// Listed has the pods of complete lists, for use without an API server. It is safe for concurrent use.
type Listed struct {
	gone   *gone
	first  chan struct{} // closed with the first list
	missed func()

	mu  sync.Mutex
	now map[string]Pod // by UID; nil: no list yet
	at  time.Time      // time of the list
}

// NewListed returns a Listed without pods until the first list. It remembers deleted pods as a
// [Watch] does. missed is called when an unknown pod is looked up, because it may be newer than
// the list. missed must not block.
func NewListed(missed func()) *Listed {
	return &Listed{gone: newGone(remember, maxGone), first: make(chan struct{}), missed: missed}
}

// Replace sets all pods that the node had at a time.
func (l *Listed) Replace(pods []Pod, at time.Time) {
	now := make(map[string]Pod, len(pods))
	for _, p := range pods {
		now[p.UID] = p
	}
	for _, p := range pods {
		if dashed := Dashed(p.UID); now[dashed].UID == "" {
			now[dashed] = p
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, p := range l.now {
		if _, ok := now[uid]; !ok {
			l.gone.add([]string{uid}, p, time.Now())
		}
	}
	if l.now == nil {
		close(l.first)
	}
	l.now, l.at = now, at
}

// Pod returns the pod with this UID, as in the name of its cgroup.
func (l *Listed) Pod(uid string) (Pod, bool) {
	l.mu.Lock()
	p, ok := l.now[uid]
	l.mu.Unlock()
	if ok {
		return p, true
	}
	if p, _, ok = l.gone.find(uid, time.Now()); !ok {
		l.missed()
	}
	return p, ok
}

// Named returns the pod of this name if it is in the latest list.
func (l *Listed) Named(namespace, name string) (Pod, bool) {
	l.mu.Lock()
	for _, p := range l.now {
		if p.Namespace == namespace && p.Name == name {
			l.mu.Unlock()
			return p, true
		}
	}
	l.mu.Unlock()
	l.missed()
	return Pod{}, false
}

// Known reports whether the latest list is from that time or later.
func (l *Listed) Known(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now != nil && !l.at.Before(at)
}

// Await waits until the first list, or until ctx ends.
func (l *Listed) Await(ctx context.Context) {
	select {
	case <-l.first:
	case <-ctx.Done():
	}
}
