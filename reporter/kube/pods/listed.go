package pods

import (
	"context"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/staticpod"
)

// Listed knows the pods of whole lists, where there is no API server to watch. It is safe
// for concurrent use.
type Listed struct {
	gone  *gone
	first chan struct{} // closed with the first list

	mu  sync.Mutex
	now map[string]Pod // by UID; nil: there was no list yet
}

// NewListed returns a Listed that knows nothing until the first list. It remembers deleted
// pods as a [Watch] does.
func NewListed() *Listed {
	return &Listed{gone: newGone(defaultRemember, defaultMaxGone), first: make(chan struct{})}
}

// Replace takes all pods that the node has now.
func (l *Listed) Replace(pods []Pod) {
	now := make(map[string]Pod, len(pods))
	for _, p := range pods {
		now[p.UID] = p
	}
	for _, p := range pods {
		if dashed := staticpod.Dashed(p.UID); now[dashed].UID == "" {
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
	l.now = now
}

// Pod returns the pod that a control group names by uid.
func (l *Listed) Pod(uid string) (Pod, bool) {
	l.mu.Lock()
	p, ok := l.now[uid]
	l.mu.Unlock()
	if ok {
		return p, true
	}
	p, _, ok = l.gone.find(uid, time.Now())
	return p, ok
}

// Await waits until there was a list, or ctx ends.
func (l *Listed) Await(ctx context.Context) {
	select {
	case <-l.first:
	case <-ctx.Done():
	}
}
