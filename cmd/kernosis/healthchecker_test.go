package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// systemd is a folder of commands that record how they were called. The file "since" has what
// systemctl reports as the service's start.
type systemd struct{ dir string }

func newSystemd(t *testing.T, up time.Duration) *systemd {
	t.Helper()
	// Without basename and dirname, because on a busy machine each started program takes a while.
	note := `echo "${0##*/} $*" >>"${0%/*}/calls"` + "\n"
	s := &systemd{dir: executables(t, map[string]string{
		"systemctl": note + `[ "$1" != show ] || cat "${0%/*}/since"`,
		"pkill":     note, "docker": note + "exit $(cat ${0%/*}/docker.exit 2>/dev/null || echo 0)",
		"crictl": note + `case $* in *dead.sock*) echo "connection refused" >&2; exit 1;; *slow.sock*) sleep 1000;; esac`,
	})}
	s.since(t, "InactiveExitTimestamp="+time.Now().Add(-up).UTC().Format("Mon 2006-01-02 15:04:05 MST"))
	return s
}

func (s *systemd) since(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "since"), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// calls returns how the commands were called, and clears the record.
func (s *systemd) calls(t *testing.T) string {
	t.Helper()
	path := filepath.Join(s.dir, "calls")
	b, _ := os.ReadFile(path)
	_ = os.Remove(path)
	return strings.TrimSpace(string(b))
}

func (s *systemd) env(more ...string) []string {
	return append(more, "PATH="+s.dir+":"+os.Getenv("PATH"))
}

// server starts a server that answers with a status by path, and returns its port.
func server(t *testing.T, status map[string]int) (port string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, ok := status[r.URL.Path]; ok {
			w.WriteHeader(code)
		} else {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

const (
	show = "systemctl show %s --property=InactiveExitTimestamp"
	kill = "systemctl kill --kill-who=main %s"
)

func TestHealthCheckerHTTP(t *testing.T) {
	testenv.OnlyInTestAll(t)
	healthy := server(t, map[string]int{"/healthz": 200, "/livez": 200})
	failing := server(t, map[string]int{"/healthz": 500, "/livez": 503})
	older := server(t, map[string]int{"/healthz": 200})
	kubelet := "kubelet:kubelet was found unhealthy; repair flag : "
	for _, c := range []struct {
		name, env string
		up        time.Duration
		args      []string
		code      int
		want      string
		calls     []string
	}{
		{"healthy", "KUBELET_PORT=" + healthy, time.Hour, nil, checkOK, "", nil},
		{"unhealthy", "KUBELET_PORT=" + failing, time.Hour, nil, checkProblem, kubelet + "true",
			[]string{fmt.Sprintf(show, "kubelet"), fmt.Sprintf(kill, "kubelet")}},
		{"without repair", "KUBELET_PORT=" + failing, time.Hour, []string{"--enable-repair=false"}, checkProblem, kubelet + "false", nil},
		{"cooling down", "KUBELET_PORT=" + failing, time.Minute, nil, checkProblem, kubelet + "true", []string{fmt.Sprintf(show, "kubelet")}},
		{"shorter cooldown", "KUBELET_PORT=" + failing, time.Minute, []string{"--cooldown-time=30s"}, checkProblem, kubelet + "true",
			[]string{fmt.Sprintf(show, "kubelet"), fmt.Sprintf(kill, "kubelet")}},
		{"other service", "KUBELET_PORT=" + failing, time.Hour, []string{"--service=k3s"}, checkProblem, "kubelet:k3s was found unhealthy; repair flag : true",
			[]string{fmt.Sprintf(show, "k3s"), fmt.Sprintf(kill, "k3s")}},
		{"its older flag", "KUBELET_PORT=" + failing, time.Hour, []string{"--systemd-service=k3s", "--enable-repair=false"}, checkProblem, "kubelet:k3s was found unhealthy; repair flag : false", nil},
		{"no listener", "KUBELET_PORT=1", time.Hour, []string{"--enable-repair=false"}, checkProblem, kubelet + "false", nil},
		{"kube-proxy", "KUBEPROXY_PORT=" + healthy, time.Hour, []string{"--component=kube-proxy"}, checkOK, "", nil},
		{"kube-proxy unhealthy", "KUBEPROXY_PORT=" + failing, time.Hour, []string{"--component=kube-proxy"}, checkProblem, "kube-proxy:kube-proxy was found unhealthy; repair flag : true",
			[]string{fmt.Sprintf(show, "kube-proxy"), fmt.Sprintf(kill, "kube-proxy")}},
		{"kube-proxy without /livez", "KUBEPROXY_PORT=" + older, time.Hour, []string{"--component=kube-proxy"}, checkOK, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSystemd(t, c.up)
			// The proxy does not exist: a request through it would fail.
			call(t, s.env(c.env, "HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY="), "health-checker", c.args...).want(t, c.code, c.want)
			if got, want := s.calls(t), strings.Join(c.calls, "\n"); got != want {
				t.Errorf("commands %q, want %q", got, want)
			}
		})
	}
}

func TestHealthCheckerOtherAddress(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	var asked atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	_ = srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	call(t, []string{"HOST_ADDRESS=::1", "KUBELET_PORT=" + port}, "health-checker").want(t, checkOK, "")
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestHealthCheckerTimeLimit(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	began := time.Now()
	call(t, []string{"KUBELET_PORT=" + port}, "health-checker", "--enable-repair=false", "--health-check-timeout=200ms").
		want(t, checkProblem, "kubelet:kubelet was found unhealthy; repair flag : false")
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestHealthCheckerRuntimes(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		setup map[string]string
		code  int
		want  string
		calls []string
	}{
		{"cri", []string{"--component=cri"}, nil, checkOK, "",
			[]string{"crictl --timeout=2s --runtime-endpoint=unix:///var/run/containerd/containerd.sock pods --latest"}},
		{"cri unhealthy", []string{"--component=cri", "--cri-timeout=10s", "--cri-socket-path=unix:///run/dead.sock"}, nil,
			checkProblem, "cri:containerd was found unhealthy; repair flag : true",
			[]string{"crictl --timeout=10s --runtime-endpoint=unix:///run/dead.sock pods --latest", fmt.Sprintf(show, "containerd"), fmt.Sprintf(kill, "containerd")}},
		{"crio hangs", []string{"--component=cri", "--service=crio", "--health-check-timeout=2s", "--cri-socket-path=unix:///run/slow.sock"}, nil,
			checkProblem, "cri:crio was found unhealthy; repair flag : true",
			[]string{"crictl --timeout=2s --runtime-endpoint=unix:///run/slow.sock pods --latest", fmt.Sprintf(show, "crio"), fmt.Sprintf(kill, "crio")}},
		{"docker", []string{"--component=docker"}, nil, checkOK, "", []string{"docker ps"}},
		{"docker unhealthy", []string{"--component=docker"}, map[string]string{"docker.exit": "1"}, checkProblem, "docker:docker was found unhealthy; repair flag : true",
			[]string{"docker ps", fmt.Sprintf(show, "docker"), "pkill -SIGUSR1 dockerd", fmt.Sprintf(kill, "docker")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSystemd(t, time.Hour)
			for name, content := range c.setup {
				if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := append([]string{"--crictl-path=" + s.dir + "/crictl"}, c.args...)
			call(t, s.env(), "health-checker", args...).want(t, c.code, c.want)
			if got, want := s.calls(t), strings.Join(c.calls, "\n"); got != want {
				t.Errorf("commands %q, want %q", got, want)
			}
		})
	}
}

func TestHealthCheckerServiceThatNeverStarted(t *testing.T) {
	s := newSystemd(t, time.Hour)
	s.since(t, "InactiveExitTimestamp=")
	call(t, s.env("KUBELET_PORT=1"), "health-checker").want(t, checkProblem, "kubelet:kubelet was found unhealthy; repair flag : true")
	if got := s.calls(t); got != fmt.Sprintf(show, "kubelet") {
		t.Errorf("commands %q", got)
	}
}

func TestHealthCheckerLogPattern(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const bad = "PLEG is not healthy: pleg was last seen active 3m0s ago"
	dir := writeJournal(t,
		journalEntry{50 * time.Minute, "kubelet", "kubelet.service", bad}, // before the start
		journalEntry{20 * time.Minute, "kubelet", "kubelet.service", bad},
		journalEntry{19 * time.Minute, "other", "other.service", bad},
		journalEntry{18 * time.Minute, "kubelet", "kubelet.service", "fine, 1,2:3"},
		journalEntry{2 * time.Minute, "kubelet", "kubelet.service", bad},
		journalEntry{time.Minute, "kubelet", "kubelet.service", bad},
	)
	port := server(t, map[string]int{"/healthz": 200})
	unhealthy := "kubelet:kubelet was found unhealthy; repair flag : true"
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"as often, since the start", []string{"--log-pattern=3:pleg IS not healthy"}, checkProblem, unhealthy},
		{"less often", []string{"--log-pattern=4:PLEG is not healthy"}, checkOK, ""},
		{"loopback", []string{"--log-pattern=3:PLEG is not healthy", "--loopback-time=10m"}, checkOK, ""},
		{"loopback, as often", []string{"--log-pattern=2:PLEG is not healthy", "--loopback-time=10m"}, checkProblem, unhealthy},
		{"loopback before the start", []string{"--log-pattern=4:PLEG is not healthy", "--loopback-time=10h"}, checkOK, ""},
		{"a comma in the pattern", []string{"--log-pattern=9:nothing,1:fine, 1,2"}, checkProblem, unhealthy},
		{"several flags", []string{"--log-pattern=9:PLEG", "--log-pattern=1:fine"}, checkProblem, unhealthy},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSystemd(t, 30*time.Minute)
			args := append([]string{"--journal-dir=" + dir}, c.args...)
			call(t, s.env("KUBELET_PORT="+port), "health-checker", args...).want(t, c.code, c.want)
			if killed := strings.Contains(s.calls(t), fmt.Sprintf(kill, "kubelet")); killed != (c.code == checkProblem) {
				t.Errorf("killed: %t", killed)
			}
		})
	}
	s := newSystemd(t, 30*time.Minute)
	root := hostWithJournal(t, journald.Folder, journalEntry{time.Minute, "kubelet", "kubelet.service", bad})
	call(t, s.env("KUBELET_PORT="+port, agent.HostRootEnv+"="+root), "health-checker", "--log-pattern=1:PLEG is not healthy").
		want(t, checkProblem, unhealthy)
	s = newSystemd(t, time.Hour)
	s.since(t, "nonsense")
	got := call(t, s.env("KUBELET_PORT="+port), "health-checker", "--log-pattern=1:x", "--journal-dir="+dir)
	if got.code != checkUnknown || !strings.HasPrefix(got.stdout, "error checking kubelet health: systemctl show kubelet: ") {
		t.Errorf("%+v", got)
	}
}
