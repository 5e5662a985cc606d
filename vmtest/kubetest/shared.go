package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Shared is the server of a test package. The first test that asks for it starts it, or borrows the
// one that the test run lends to all packages ([Lend]). The zero value is ready for use.
type Shared struct {
	// Controllers is [Options.Controllers]; such a server is never borrowed.
	Controllers bool
	// Own starts a separate server for the package. It is for packages with tests that write or
	// count cluster-wide objects: these could disturb, or be disturbed by, tests of other packages.
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
		if socket := os.Getenv(ServerEnv); socket != "" && !s.Own && !s.Controllers {
			s.server, s.err = borrow(ctx, socket)
		} else {
			s.server, s.err = Start(ctx, Options{Controllers: s.Controllers})
		}
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// ServerEnv names the environment variable with the unix socket at which a test run lends its
// server to the tested packages ([Lend]).
const ServerEnv = "KUBETEST_SERVER"

// loan is the lender's reply to a borrower.
type loan struct {
	Dir   string `json:"dir"` // state folder
	Port  int    `json:"port"`
	Error string `json:"error,omitempty"` // why no server is lent
}

// Lend creates a unix socket and lends one server, with the default options, to all processes that
// connect to it. The server starts at the first connection. The returned function closes both.
func Lend(ctx context.Context, socket string) (end func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	var server *Server
	ended := make(chan struct{}) // no more requests can arrive
	go func() {
		defer close(ended)
		var answer *loan
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if answer == nil {
				if server, err = Start(ctx, Options{}); err != nil {
					answer = &loan{Error: err.Error()}
				} else {
					answer = &loan{Dir: server.dir, Port: server.port}
				}
			}
			_ = json.NewEncoder(conn).Encode(answer) // the borrower reports what it lacks
			_ = conn.Close()
		}
	}()
	return func() error {
		err := listener.Close()
		<-ended
		if server != nil {
			err = errors.Join(err, server.Close())
		}
		return err
	}, nil
}

// borrow returns the server lent at a socket. Its Close does not stop the server.
func borrow(ctx context.Context, socket string) (*Server, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ServerEnv, err)
	}
	defer conn.Close()
	var answer loan
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", ServerEnv, err)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	s := &Server{dir: answer.Dir, port: answer.Port, borrowed: true}
	if s.ca, err = readAuthority(s.dir); err != nil {
		return nil, err
	}
	if s.admin, err = s.User("kubetest-admin", "system:masters"); err != nil {
		return nil, err
	}
	s.client, err = kubernetes.NewForConfig(s.admin)
	return s, err
}

// hangUp closes the connections that clients of a borrowed server keep open. Otherwise they would
// stay open until the server ends.
func (s *Server) hangUp() {
	if transport, err := rest.TransportFor(s.admin); err == nil { // the transport that the clients share
		utilnet.CloseIdleConnectionsFor(transport)
	}
}
