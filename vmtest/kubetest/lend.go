package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ServerEnv names the environment variable with the unix socket at which a test run lends its
// server to the tested packages ([Lend]).
const ServerEnv = "KUBETEST_SERVER"

// loan is the lender's reply to a borrower.
type loan struct {
	Dir      string `json:"dir"` // state folder
	Programs string `json:"programs"`
	Port     int    `json:"port"`
	Error    string `json:"error,omitempty"` // why no server is lent
}

// Lend creates a unix socket and lends one server, with the default options, to all processes that
// connect to it. The server starts at the first connection. The returned function closes both.
func Lend(ctx context.Context, socket string) (end func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	l := &lender{ctx: ctx, ended: make(chan struct{})}
	go l.serve(listener)
	return func() error {
		err := listener.Close()
		<-l.ended
		l.answers.Wait()
		if l.server != nil {
			err = errors.Join(err, l.server.Close())
		}
		return err
	}, nil
}

type lender struct {
	ctx     context.Context //nolint:containedctx // of the run, which the server belongs to
	ended   chan struct{}   // closed when no more requests can arrive
	answers sync.WaitGroup

	once   sync.Once
	server *Server
	err    error
}

func (l *lender) serve(listener net.Listener) {
	defer close(l.ended)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l.answers.Go(func() {
			defer conn.Close()
			l.once.Do(func() { l.server, l.err = Start(l.ctx, Options{}) })
			var answer loan
			if l.err != nil {
				answer.Error = l.err.Error()
			} else {
				answer = loan{Dir: l.server.dir, Programs: l.server.programs, Port: l.server.port}
			}
			_ = json.NewEncoder(conn).Encode(answer) // the borrower reports what it lacks
		})
	}
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
	s := &Server{dir: answer.Dir, programs: answer.Programs, port: answer.Port, borrowed: true}
	if s.ca, err = readAuthority(s.dir); err != nil {
		return nil, err
	}
	if s.admin, err = s.User("kubetest-admin", "system:masters"); err != nil {
		return nil, err
	}
	s.client, err = kubernetes.NewForConfig(s.admin)
	return s, err
}

// hangUp closes the connections that clients of a borrowed server keep open, which otherwise only
// the end of the server would close.
func (s *Server) hangUp() {
	if transport, err := rest.TransportFor(s.admin); err == nil { // the transport that the clients share
		utilnet.CloseIdleConnectionsFor(transport)
	}
}
