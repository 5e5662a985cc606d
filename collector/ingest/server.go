package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/ingest/client"
)

// Timeouts for a peer, which is a daemon on this machine.
const (
	readTime  = 5 * time.Second
	writeTime = 10 * time.Second // the engine may be busy
	idleTime  = 2 * time.Minute  // heartbeats reuse their connection
)

// Server serves reports on a unix socket. Create one with Listen.
type Server struct {
	intake *Intake
	l      *peerListener
	http   *http.Server
}

// Listen creates the socket, accessible to root only (0600). If users other than the agent's may
// report, it is accessible to all (0666), and the user ID that the kernel reports for a connection
// decides. Listen fails if another process answers on the socket. Connections wait for Serve.
func Listen(path string, in *Intake) (*Server, error) {
	who, err := newPeers(in.fs)
	if err != nil {
		return nil, fmt.Errorf("report socket: %w", err)
	}
	users := in.UIDs()
	mode := os.FileMode(0o600)
	self := uint32(os.Geteuid())
	if slices.ContainsFunc(users, func(u uint32) bool { return u != 0 && u != self }) {
		mode = 0o666
	}
	ul, info, err := openSocket(path, mode)
	if err != nil {
		return nil, fmt.Errorf("report socket: %w", err)
	}
	l := &peerListener{
		UnixListener: ul, path: path, info: info, peers: who, allowed: map[uint32]bool{}, open: map[uint32]int{},
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kernosis_report_connections_refused_total", Help: "Connections to the report socket that were closed because their user had too many.",
		}),
	}
	for _, u := range users {
		l.allowed[u] = true
	}
	s := &Server{intake: in, l: l}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+client.Path, s.post)
	mux.HandleFunc("/", s.elsewhere)
	s.http = &http.Server{
		Handler: mux, ReadTimeout: readTime, ReadHeaderTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 8 << 10,
		ErrorLog:       slog.NewLogLogger(in.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if p, ok := c.(*peerConn); ok {
				ctx = context.WithValue(ctx, peerKey{}, p.peer)
			}
			return ctx
		},
	}
	return s, nil
}

// peerKey is the key of a connection's [Peer].
type peerKey struct{}

// Serve serves reports until ctx ends and then returns nil. It closes the socket.
func (s *Server) Serve(ctx context.Context) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := s.http.Shutdown(wait); err != nil {
			_ = s.http.Close()
		}
	})
	err := s.http.Serve(s.l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, s.Close())
}

// Close removes the socket and closes all connections. It may be called again.
func (s *Server) Close() error { return errors.Join(s.http.Close(), s.l.Close()) }

// Metrics returns the server's own metric.
func (s *Server) Metrics() prometheus.Collector { return s.l.refused }

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	peer, ok := r.Context().Value(peerKey{}).(Peer)
	if !ok || !s.l.allowed[peer.UID] {
		w.Header().Set("Connection", "close") // free the place for other unknown users
		s.refused(w, refuse(Forbidden, fmt.Sprintf("user %d may not report", peer.UID)))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, client.MaxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			s.refused(w, refuse(TooLarge, fmt.Sprintf("a report has at most %d bytes", client.MaxBody)))
			return
		}
		s.refused(w, refuse(Invalid, "the report is incomplete"))
		return
	}
	answer, err := s.intake.Report(peer, r.Header.Get(client.KeyHeader), body)
	if err != nil {
		refusal := &Refusal{Outcome: Closing, Message: err.Error()}
		errors.As(err, &refusal)
		s.answer(w, refusal)
		return
	}
	write(w, http.StatusOK, answer)
}

// refused answers requests that don't reach the intake, and counts them.
func (s *Server) refused(w http.ResponseWriter, r *Refusal) {
	s.intake.counts.reports.WithLabelValues("", string(r.Outcome)).Inc()
	s.answer(w, r)
}

func (s *Server) answer(w http.ResponseWriter, r *Refusal) {
	a := client.Answer{Error: r.Message, Fields: r.Fields}
	if r.RetryAfter > 0 {
		// HTTP allows only whole seconds.
		seconds := int64((r.RetryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		a.RetryAfter = r.RetryAfter.Round(time.Millisecond).String()
	}
	write(w, r.status(), a)
}

// elsewhere answers requests that are not reports.
func (s *Server) elsewhere(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != client.Path {
		write(w, http.StatusNotFound, client.Answer{Error: "reports are posted to " + client.Path})
		return
	}
	w.Header().Set("Allow", http.MethodPost)
	write(w, http.StatusMethodNotAllowed, client.Answer{Error: "want POST"})
}

func write(w http.ResponseWriter, status int, a client.Answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // if it fails, the peer is gone
}

// Refusal is the error for a report that was not accepted.
type Refusal struct {
	Outcome    Outcome
	Message    string
	Fields     []client.Field
	RetryAfter time.Duration // for RateLimit
}

// maxFields is how many mistakes are reported: enough to fix the daemon.
const maxFields = 20

func refuse(o Outcome, message string, fields ...client.Field) *Refusal {
	if more := len(fields) - maxFields; more > 0 {
		fields = append(fields[:maxFields:maxFields], client.Field{Message: fmt.Sprintf("and %d more", more)})
	}
	return &Refusal{Outcome: o, Message: message, Fields: fields}
}

func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString(r.Message)
	for _, f := range r.Fields {
		fmt.Fprintf(&b, "; %s %s", f.Field, f.Message)
	}
	return b.String()
}

// status returns the HTTP status.
func (r *Refusal) status() int {
	return cmp.Or(map[Outcome]int{
		Forbidden: http.StatusForbidden, Conflict: http.StatusConflict, TooLarge: http.StatusRequestEntityTooLarge,
		RateLimit: http.StatusTooManyRequests, Closing: http.StatusServiceUnavailable,
	}[r.Outcome], http.StatusBadRequest)
}
