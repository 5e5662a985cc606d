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
	// lookLimit bounds all look-ups after one failure, answerLimit a single one.
	lookLimit   = 2 * time.Second
	answerLimit = 500 * time.Millisecond
	// lookRate is how many failures a second are inspected, one after another, and lookBurst how
	// many at once after a quiet time. Each takes some 0.3 ms. If all network namespaces of the
	// node must be searched for the address, it takes that for each of them.
	lookRate  = 5
	lookBurst = 50
)

// seen is what an inspection found. Its zero value means "not inspected".
type seen struct {
	skipped  bool // too many failures at once
	route    netlook.Route
	neighbor netlook.Neighbor
	listener netlook.Listener
	child    netlook.ChildState
}

// looker queries the kernel after failures, one failure at a time.
type looker struct {
	limit  *rate.Limiter
	turn   chan struct{}
	spaces *netlook.Namespaces // used only by the holder of turn
}

func newLooker(fs hostfs.FS) *looker {
	return &looker{limit: rate.NewLimiter(lookRate, lookBurst), turn: make(chan struct{}, 1), spaces: netlook.NewNamespaces(fs, answerLimit)}
}

// look returns within twice lookLimit, with what it has found by then.
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
			return s // on another machine, or not found
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
