package pods

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// settle is how long a new watch gets to deliver pods that were created while there was none; it
// takes milliseconds.
const settle = time.Second

// streams tracks whether a watch is open. An informer does not report that: it stays synced after
// its first list, and retries silently if connections are refused.
type streams struct {
	mu     sync.Mutex
	open   *stream // nil: no open watch
	opened time.Time
}

// note wraps l so that its watches are tracked.
func (s *streams) note(l *cache.ListWatch) *cache.ListWatch {
	begin := l.WatchFuncWithContext
	l.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, o)
		if err != nil {
			return nil, err
		}
		begun := &stream{Interface: w, of: s}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open, s.opened = begun, time.Now()
		return begun, nil
	}
	return l
}

// settled reports whether a watch is open and has delivered earlier changes.
func (s *streams) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open != nil && time.Since(s.opened) >= settle
}

// stream is a tracked watch. The reflector stops each watch once it has ended, some more than
// once.
type stream struct {
	watch.Interface
	of *streams
}

func (s *stream) Stop() {
	s.of.mu.Lock()
	if s.of.open == s {
		s.of.open = nil
	}
	s.of.mu.Unlock()
	s.Interface.Stop()
}
