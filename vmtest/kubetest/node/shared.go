package node

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// Shared is the one node of a test package, with its API server. It is started by the
// first test that asks for it, so that others run without. The zero value is ready for
// use.
type Shared struct {
	// Options are those of the node.
	Options Options
	// Cluster has the API server; its options are given by who declares it.
	Cluster kubetest.Shared

	once sync.Once
	node *Node
	err  error
}

// Run runs the tests of the package (a *testing.M), ends the node and the server, and
// returns what the process exits with.
func (s *Shared) Run(m interface{ Run() int }) int {
	return s.Cluster.Run(run(func() int {
		code := m.Run()
		if s.node == nil {
			return code
		}
		if err := s.node.Close(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "node:", err)
			return max(code, 1)
		}
		return code
	}))
}

type run func() int

func (r run) Run() int { return r() }

// Node returns the node, ready. The test is skipped for want of root, and fails where
// the node can't be started.
func (s *Shared) Node(tb testing.TB) *Node {
	tb.Helper()
	Need(tb)
	server := s.Cluster.Server(tb)
	s.once.Do(func() {
		// It is the package's, and not this test's.
		s.node, s.err = Start(context.WithoutCancel(tb.Context()), server, s.Options)
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.node
}
