package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// fakeAgent is a process that looks like an agent, with a state folder of its own.
type fakeAgent struct {
	state, log string
	pid        int
}

// startFakeAgent starts a fakeAgent and waits until it is found.
func startFakeAgent(t *testing.T, args []string, env ...string) *fakeAgent {
	t.Helper()
	a := fakeAgentAs(t, nil, args, env...)
	testenv.Until(t, "the process", 10*time.Second, func() bool { p, err := findAgent(a.state); return err == nil && p != nil })
	return a
}

// fakeAgentAs starts a fakeAgent: a shell that runs a file named "run".
func fakeAgentAs(t *testing.T, attr *syscall.SysProcAttr, args []string, env ...string) *fakeAgent {
	t.Helper()
	dir := t.TempDir()
	a := &fakeAgent{state: filepath.Join(dir, "state"), log: filepath.Join(dir, "agent.log")}
	if err := errors.Join(os.Mkdir(a.state, 0o700), os.WriteFile(filepath.Join(dir, "run"), []byte("read x\n"), 0o644)); err != nil { //nolint:gosec // another user runs it
		t.Fatal(err)
	}
	log, err := os.Create(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := &exec.Cmd{
		Path: "/bin/sh", Args: append([]string{"/usr/bin/kernosis", "run", "--state-dir", "state", "--report-socket="}, args...),
		Dir: dir, Env: append(env, "KERNOSIS_JOURNAL_MIB=7"), Stderr: log, SysProcAttr: attr,
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	a.pid = cmd.Process.Pid
	return a
}

// An agent is found with its settings, wherever it was started; other processes are not found.
func TestFindAgent(t *testing.T) {
	a := startFakeAgent(t, []string{"--listen", "0.0.0.0:4711"})
	p, err := findAgent(a.state)
	if err != nil || p == nil || p.pid != a.pid || p.err != nil || p.config.JournalMiB != 7 || p.config.OriginOf("journal-mib") != "env KERNOSIS_JOURNAL_MIB" {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err := findAgent(t.TempDir()); p != nil || err != nil {
		t.Errorf("of another folder: %+v, %v", p, err)
	}
	t.Chdir(filepath.Dir(a.state))
	if p, err := findAgent("state"); err != nil || p == nil || p.pid != a.pid {
		t.Errorf("by a relative path: %+v, %v", p, err)
	}
	if _, err := configOf(a.pid, []string{"run", "--config", "c.yaml"}); err == nil || !strings.Contains(err.Error(), filepath.Join(filepath.Dir(a.state), "c.yaml")) {
		t.Errorf("of a file that is missing: %v", err)
	}
	dir := filepath.Dir(a.state)
	cfg, err := configOf(a.pid, []string{"agent", "--rules-dir", "rules", "--mutes", "mutes.yaml", "--config.system-log-monitor", "a.json,/b.json"})
	if err != nil || cfg.RulesDir != filepath.Join(dir, "rules") || cfg.Mutes != filepath.Join(dir, "mutes.yaml") || !slices.Equal(cfg.NPD.SystemLog, []string{filepath.Join(dir, "a.json"), "/b.json"}) {
		t.Errorf("relative paths: %+v, %v", cfg, err)
	}
	if at := p.config.Endpoint(); at != "https://127.0.0.1:4711" {
		t.Error(at)
	}
}

// A process that poses as an agent would choose which files a command reads, and which server gets its
// token. So processes of other users, and in other mount namespaces, are not trusted.
func TestWhichProcessesAreTrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start processes of another user and in another namespace")
	}
	if err := os.Chmod(filepath.Dir(t.TempDir()), 0o755); err != nil { //nolint:gosec // another user must be able to enter it
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		attr *syscall.SysProcAttr
		want bool
	}{
		"the caller's":               {&syscall.SysProcAttr{}, true},
		"another user's":             {&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, false},
		"in another mount namespace": {&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, false},
	} {
		a := fakeAgentAs(t, c.attr, nil)
		p, err := findAgent(a.state)
		if err != nil || (p != nil) != c.want {
			t.Errorf("%s: found %+v, %v", name, p, err)
		}
		if line, err := procStrings(a.pid, "cmdline"); err != nil || len(line) == 0 || line[0] != "/usr/bin/kernosis" {
			t.Errorf("%s: it does not run any more: %q, %v", name, line, err)
		}
	}
}

// On NixOS os-release is behind an absolute link, which leads below the host's root.
func TestBundleReadsBelowTheHostsRoot(t *testing.T) {
	root := t.TempDir()
	release := filepath.Join(root, "etc/static/os-release")
	if err := errors.Join(os.MkdirAll(filepath.Dir(release), 0o755), os.WriteFile(release, []byte("ID=nixos\n"), 0o600),
		os.Symlink("/etc/static/os-release", filepath.Join(root, "etc/os-release"))); err != nil {
		t.Fatal(err)
	}
	s := &support{process: &agentProcess{config: agent.Config{HostRoot: root}}}
	_, text, err := s.readKernel(t.Context())
	if err != nil || !strings.Contains(text, "== /etc/os-release\nID=nixos\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// secret is planted in every source of an archive.
const secret = "hunter2"

// No file of an archive has a secret, and each file is present or listed as missing.
func TestBundleHasNoSecrets(t *testing.T) {
	shown := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = r.Header.Get("Authorization")
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprintf(w, "kernosis_build_info{version=\"v1\"} 1\nx{url=\"https://web:%[1]s@db\",token=%[1]q} 1\n", secret)
		case "/healthz":
			http.Error(w, "the API server refuses Authorization: Bearer "+secret, http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok\ndegraded: log/app: token="+secret)
		}
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("rules/own.yaml", `apiVersion: rules.kernosis.io/v1
rules: # password: hunter2
- {name: own, events: [oomkill], reason: Own, message: "secret=hunter2"}
`)
	kubeconfig := write("kubeconfig", "users: [{name: a, user: {token: "+secret+"}}]\n")
	config := write("c.yaml", `kubeconfig: `+kubeconfig+`
services:
  probes:
  - {name: web, handler: exec, condition: WebUnhealthy, command: [/bin/check, --password, hunter2]}
  - {name: api, handler: http, address: "127.0.0.1:80", condition: APIUnhealthy, headers: {X-Api-Key: hunter2, Cookie: "a=hunter2"}}
`)
	token := write("token", secret+"\n")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	a := startFakeAgent(t, []string{"--config", config, "--rules-dir", filepath.Join(dir, "rules"), "--listen", "127.0.0.1:" + port, "DB_PASSWORD=" + secret}, "PGPASSWORD="+secret)
	if err := os.WriteFile(a.log, []byte("level=WARN msg=refused error=\"Authorization: Bearer "+secret+"\"\n"+
		`level=WARN msg=refused error="403: {\"token\":\"`+secret+`\"}"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, "mute", "oom-kill", "--state-dir", a.state, "--for", "1h", "--reason", "token="+secret); code != output.ExitOK {
		t.Fatal(out)
	}
	set := filepath.Join(dir, "set.yaml")
	write("set.yaml", "apiVersion: kernosis.io/v1alpha1\nkind: OperationSet\nmetadata: {name: facts}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n  - {id: 1, operation: process-tree}\n")
	if code, out, errs := diagnoseCommand(t.Context(), "run", "-f", set, "--id", "d1", "--state-dir", a.state, "--node", "token="+secret); code != output.ExitOK {
		t.Log(out, errs)
	}
	j, err := journal.Open(filepath.Join(a.state, agent.JournalDir), journal.Options{Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"mysqld --password=" + secret + " started", `{"token":"` + secret + `"}`, "curl -u admin:" + secret} {
		if _, _, err := j.Add(journal.Entry{Now: time.Now(), Event: &event.Event{Kind: event.Log, Log: &event.LogData{Log: "app", Text: text}}}); err != nil || j.Flush() != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "out.tar.gz")
	args := []string{"bundle", "--state-dir", a.state, "--token-file", token, "--features=false", "-o", path}
	code, out := command(t, args...)
	if code != output.ExitOK || !strings.Contains(out, "1 could not be collected, see MANIFEST") || shown != "Bearer "+secret {
		t.Errorf("exit code %d: %s (shown %q)", code, out, shown)
	}
	files := bundleFiles(t, path)
	for name, text := range files {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s has the secret: …%s…", name, text[max(0, i-80):min(len(text), i+20)])
		}
	}
	for name, want := range map[string]string{
		"version.txt": "kernosis ", "status.txt": "COST ", "status.json": `"outcome"`, "healthz.txt": "Authorization: [redacted]", "readyz.txt": "token=[redacted]",
		"metrics.txt": "https://web:[redacted]@db", "config.yaml": "journal-mib: 7 # env KERNOSIS_JOURNAL_MIB", "rules.txt": "own  ", "rules/own.yaml": "# password: [redacted]",
		"mutes.yaml": "[redacted]", "journal.jsonl": "mysqld --password=[redacted] started", "diagnoses.txt": "d1  ", "kernel.txt": "== /proc/version",
		"process.txt": "DB_PASSWORD=[redacted]", "agent.log": "Authorization: [redacted]", "MANIFEST": "features.txt  --features=false",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: %q is missing in\n%.2000s", name, want, files[name])
		}
		if name != "MANIFEST" && !strings.Contains(files["MANIFEST"], "\n"+name+" ") {
			t.Errorf("the MANIFEST does not list %s", name)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if code, _ := command(t, args...); code != output.ExitFailed {
		t.Errorf("an archive was overwritten: exit code %d", code)
	}
}

// Without an agent the archive has what is available. It can go to the standard output.
func TestBundleWithoutAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tar.gz")
	code, out := command(t, "bundle", "--state-dir", t.TempDir(), "--endpoint", "127.0.0.1:1", "--features=false", "-o", "-")
	if code != output.ExitOK {
		t.Fatal(code)
	}
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	files := bundleFiles(t, path)
	for _, want := range []string{"agent.log      no agent is running", "metrics.txt    ", "journal.jsonl  read journal: ", "no agent is running: the defaults of kernosis agent"} {
		if !strings.Contains(files["MANIFEST"], want) {
			t.Errorf("%q is missing in\n%s", want, files["MANIFEST"])
		}
	}
	if !strings.Contains(files["status.txt"], "no agent is running") || !strings.Contains(files["rules.txt"], "oom-kill") {
		t.Error(files["status.txt"])
	}
}

// bundleFiles reads the archive in a file.
func bundleFiles(t *testing.T, path string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return readArchive(t, raw)
}

func readArchive(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Fatal(h, err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}

func TestBundleName(t *testing.T) {
	at := time.Date(2026, 2, 14, 10, 0, 5, 0, time.UTC)
	got := []string{bundleName("worker-7.example.com", at), bundleName("", at), bundleName("../x/Y", at)}
	if want := []string{"kernosis-worker-7.example.com-20260214-100005", "kernosis-node-20260214-100005", "kernosis-..x-20260214-100005"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
