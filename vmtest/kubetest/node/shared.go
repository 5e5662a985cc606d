package node

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// Shared is the node of a test package, with its API server. The first test that asks for it starts
// it, so that other tests run without. The zero value is ready for use.
type Shared struct {
	// Kubelet holds additional settings of KubeletConfiguration, by field name.
	Kubelet map[string]any
	Cluster kubetest.Shared // the API server

	once sync.Once
	node *Node
	err  error
}

// Run runs the tests of the package (a *testing.M), stops the node and the server, and returns the
// exit code of the process.
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

// Node returns the ready node. It skips the test without root, and fails it if the node can't be
// started.
func (s *Shared) Node(tb testing.TB) *Node {
	tb.Helper()
	Need(tb)
	server := s.Cluster.Server(tb)
	s.once.Do(func() {
		// The node must outlive this test.
		s.node, s.err = Start(context.WithoutCancel(tb.Context()), server, s.Kubelet)
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.node
}
