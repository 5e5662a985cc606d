package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
)

// slowByte is the delay before each byte of a response in mode Slow.
const slowByte = 200 * time.Millisecond

// server is the process that serves the probed ports.
type server struct {
	tls    *tls.Config
	health *health.Server

	mu       sync.Mutex
	mode     fault.Mode
	listener io.Closer // at the probed port, or the one that replaces it
	at       int       // the port where it accepts; 0 if none
	kept     []net.Conn
}

func serve() error {
	pair := httptest.NewTLSServer(nil) // it has a certificate, which kubelet does not verify
	pair.Close()
	s := &server{tls: &tls.Config{Certificates: pair.TLS.Certificates}, health: health.NewServer()}
	encrypted, err := listen(fault.PortTLS)
	if err != nil {
		return err
	}
	go accept(encrypted, s.encrypted)
	rpc, err := listen(fault.PortGRPC)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(g, s.health)
	go func() { _ = g.Serve(rpc) }()
	if err := s.set(fault.None); err != nil {
		return err
	}
	control, err := listen(fault.PortControl)
	if err != nil {
		return err
	}
	http.HandleFunc("/mode", s.control)
	http.HandleFunc("/file", file)
	return http.Serve(control, nil)
}

// control sets the mode from a request.
func (s *server) control(w http.ResponseWriter, r *http.Request) {
	to := fault.Mode(r.FormValue("to"))
	if err := s.set(to); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Length", "3")
	_, _ = io.WriteString(w, "ok\n")
	if to == fault.Stopped {
		_ = http.NewResponseController(w).Flush()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// set sets the mode and returns when it is in effect.
func (s *server) set(to fault.Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	switch to {
	case fault.Refused:
		err = s.serveAt(fault.PortOther)
	case fault.QueueFull:
		if err = s.neglectAt(fault.Port, 1); err == nil {
			err = s.fill(fault.Port)
		}
	case fault.NotAccepted:
		err = s.neglectAt(fault.Port, 128)
	case fault.Throttled:
		// The processes demand about a hundred times more CPU than the limit allows.
		for range 8 {
			if _, err := child("burn"); err != nil {
				return err
			}
		}
	case fault.ChildKilled:
		eater, err := child("eat")
		if err != nil {
			return err
		}
		if err := eater.Wait(); err == nil || eater.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			return fmt.Errorf("the child was not killed: %w", err)
		}
		// The kernel's OOM reaper may free the memory only after the process has ended. A process
		// that allocates before that is killed too; in this container there is no other process.
		time.Sleep(300 * time.Millisecond)
		return nil
	case fault.None, fault.Silent, fault.Reset, fault.ResetLate, fault.Slow, fault.Status, fault.TLSGarbage, fault.ExecFails, fault.ExecHangs, fault.Stopped:
		if s.at != fault.Port {
			err = s.serveAt(fault.Port)
		}
	default:
		return fmt.Errorf("no such mode: %q", to)
	}
	if err != nil {
		return err
	}
	serving := grpc_health_v1.HealthCheckResponse_SERVING
	if to == fault.Status {
		serving = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	s.health.SetServingStatus("", serving)
	s.mode = to
	return os.WriteFile(modeFile, []byte(to), 0o644)
}

func (s *server) now() fault.Mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode
}

// plain responds to a request according to the mode.
func (s *server) plain(c net.Conn) {
	defer c.Close()
	request, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return // a TCP probe
	}
	_ = request.Body.Close()
	status := "200 OK"
	switch s.now() {
	case fault.Silent:
		_, _ = io.Copy(io.Discard, c) // until the peer closes
		return
	case fault.Reset:
		reset(c)
		return
	case fault.ResetLate:
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthis is not")
		time.Sleep(50 * time.Millisecond) // time for the response to arrive
		reset(c)
		return
	case fault.Slow:
		for _, b := range []byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n") {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(slowByte)
		}
		return
	case fault.Status:
		status = "503 Service Unavailable"
	case fault.Throttled:
		work(50 * time.Millisecond)
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n", status)
}

// encrypted is plain over TLS, or responds with something other than TLS.
func (s *server) encrypted(c net.Conn) {
	if s.now() == fault.TLSGarbage {
		defer c.Close()
		_, _ = c.Read(make([]byte, 1024)) // the ClientHello
		_, _ = io.WriteString(c, "220 this is another protocol\r\n")
		_, _ = io.Copy(io.Discard, c)
		return
	}
	s.plain(tls.Server(c, s.tls))
}

// reset closes a connection with a RST.
func reset(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// work uses CPU time, measured for this thread and not by the clock.
func work(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for begin := threadTime(); threadTime()-begin < d; {
		for range 1000 { // busy loop
		}
	}
}

func accept(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go handle(c)
		}
	}
}
