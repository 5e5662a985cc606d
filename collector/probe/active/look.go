package active

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
)

const (
	// lookLimit bounds one failure's look-ups, answerLimit one answer.
	lookLimit   = 2 * time.Second
	answerLimit = 500 * time.Millisecond
	// lookRate is how many failures a second are looked into, one after another, lookBurst
	// how many at once after quiet. Each takes some 0.3 ms, or where the address is to be
	// searched for that of each namespace of the node.
	lookRate  = 5
	lookBurst = 50
)

// seen is what a look found. Its zero value is "not looked".
type seen struct {
	skipped  bool // too many failures at once
	route    netlook.Route
	neighbor netlook.Neighbor
	listener netlook.Listener
	child    netlook.ChildState
}

// looker looks at the kernel after failures, at one after the other.
type looker struct {
	limit  *rate.Limiter
	turn   chan struct{}
	spaces *netlook.Namespaces // of who has the turn
}

func newLooker(fs hostfs.FS) *looker {
	return &looker{limit: rate.NewLimiter(lookRate, lookBurst), turn: make(chan struct{}, 1), spaces: netlook.NewNamespaces(fs, answerLimit)}
}

// look answers within twice lookLimit, with what it has by then.
func (l *looker) look(ctx context.Context, inode uint32, pid int, f *facts) (s seen) {
	if !l.limit.Allow() {
		return seen{skipped: true}
	}
	wait, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	select {
	case <-wait.Done():
		return seen{skipped: true}
	case l.turn <- struct{}{}:
	}
	defer func() { <-l.turn }()
	end := time.Now().Add(lookLimit)
	node, err := l.spaces.Open(inode, pid)
	if err != nil {
		return s
	}
	defer node.Close()
	s.route = node.RouteTo(f.to.Addr())
	if f.Phase == netprobe.PhaseConnect && s.route.Errno == 0 && s.route.Known && !s.route.Local && time.Now().Before(end) {
		s.neighbor = node.Neighbor(&s.route)
	}
	if s.route.Errno != 0 {
		return s
	}
	target := node
	if !s.route.Local && !f.to.Addr().IsLoopback() {
		home := l.spaces.Home(f.to.Addr(), end)
		if home.Inode == 0 {
			return s // on another machine, or not to be found
		}
		if target, err = l.spaces.Open(home.Inode, 0); err != nil {
			return s
		}
		defer target.Close()
	}
	if time.Now().Before(end) {
		s.listener = target.Listener(f.to)
	}
	if f.Conn.Local.IsValid() && time.Now().Before(end) {
		s.child = target.Child(f.to, f.Conn.Local)
	}
	return s
}
