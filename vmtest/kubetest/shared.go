package kubetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is the server of a test package. The first test that asks for it starts it, or borrows the
// one that the test run lends to all packages ([Lend]). The zero value is ready for use.
type Shared struct {
	// Options are the server's options. Only a server with default options is borrowed.
	Options Options
	// Own starts a separate server for the package. It is for packages whose tests could disturb
	// those of others or be disturbed, because they write or count cluster-wide objects.
	Own bool

	once   sync.Once
	server *Server
	err    error
}

// Run runs the tests of the package (a *testing.M), stops the server, and returns the exit code of
// the process.
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

// Server returns the ready server. It fails the test if the server can't be started.
func (s *Shared) Server(tb testing.TB) *Server {
	tb.Helper()
	s.once.Do(func() {
		// The server must outlive this test.
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
