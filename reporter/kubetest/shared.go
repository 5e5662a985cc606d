package kubetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is the one server of a test package. It is started by the first test that
// asks for it, so that others run without. The zero value is ready for use.
type Shared struct {
	// Options are those of the server.
	Options Options

	once   sync.Once
	server *Server
	err    error
}

// Run runs the tests of the package (a *testing.M), ends the server, and returns what
// the process exits with.
func (s *Shared) Run(m interface{ Run() int }) int {
	code := m.Run()
	if s.server == nil {
		return code
	}
	if err := s.server.Close(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "kubetest:", err)
		return max(code, 1)
	}
	return code
}

// Server returns the server, ready. The test fails where it can't be started.
func (s *Shared) Server(tb testing.TB) *Server {
	tb.Helper()
	s.once.Do(func() {
		// It is the package's, and not this test's.
		s.server, s.err = Start(context.WithoutCancel(tb.Context()), s.Options)
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}
