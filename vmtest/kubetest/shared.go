package kubetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is the one server of a test package. The first test that asks for it starts it,
// or borrows the one that the test run lends to all packages ([Lend]). The zero value is
// ready for use.
type Shared struct {
	// Options are those of the server. Only one with the default options is borrowed.
	Options Options
	// Own is for a package whose tests would disturb those of others, or be disturbed: they
	// write or count what belongs to the whole cluster. It starts a server of its own.
	Own bool

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
		ctx := context.WithoutCancel(tb.Context())
		if socket := os.Getenv(ServerEnv); socket != "" && !s.Own && len(s.Options.Flags) == 0 && !s.Options.Controllers {
			s.server, s.err = borrow(ctx, socket)
		} else {
			s.server, s.err = Start(ctx, s.Options)
		}
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}
