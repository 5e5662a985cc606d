package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// docListen is the agent's address in the documentation.
const docListen = "localhost:20257"

// docJournal is what journalctl -o export prints in a session.
const docJournal = `__REALTIME_TIMESTAMP=1767366245000001
_BOOT_ID=5d2cf4a3c2f14e3fa5c7c6e0e1d2b3a4
_TRANSPORT=kernel
SYSLOG_IDENTIFIER=kernel
PRIORITY=4
MESSAGE=Out of memory: Killed process 4242 (pg) total-vm:1024kB, anon-rss:512kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:64kB oom_score_adj:0

`

// docSession is a shell, and an agent that runs in parallel.
type docSession struct {
	t      *testing.T
	root   string // folder that replaces /
	listen string
	env    []string

	stdin io.Writer
	out   testenv.LogBuffer
	read  int               // of out
	code  int               // of the last command
	runs  map[string]string // names of runs, by their names on the page

	agent  *docProcess
	drills []*docProcess // faults that are injected while an agent runs
}

// docProcess is a command that runs in parallel to the shell.
type docProcess struct {
	statement docStatement
	cmd       *exec.Cmd
	out       testenv.LogBuffer
	used      map[int]bool // lines that a page has shown
}

// newDocSession starts a shell in an empty folder.
func newDocSession(t *testing.T) *docSession {
	t.Helper()
	s := &docSession{t: t, root: t.TempDir(), listen: kubetest.FreeAddress(t), runs: map[string]string{}}
	bin, work, program := filepath.Join(s.root, "usr/bin"), s.work(), agenttest.Program(t)
	for _, dir := range []string{bin, filepath.Join(work, "bin")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(dir, "kernosis")); err != nil {
			t.Fatal(err)
		}
	}
	testenv.WriteProgram(t, filepath.Join(bin, "sudo"), "#!/bin/sh\nexec \"$@\"\n")
	testenv.WriteProgram(t, filepath.Join(bin, "journalctl"), "#!/bin/sh\ncat <<'END'\n"+docJournal+"END\n")
	write(t, s.root, "new-lines-only.yaml", "logs: [{plugin: kmsg, lookback: 0s}]\n")
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	t.Cleanup(s.close)

	shell := exec.Command("sh")
	shell.Dir, shell.Env, shell.Stdout, shell.Stderr = work, s.env, &s.out, &s.out
	stdin, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdin = stdin
	s.start(shell)
	t.Cleanup(func() {
		stdin.Close()
		if err := shell.Wait(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return s
}

func (s *docSession) work() string { return filepath.Join(s.root, "home") }

// start starts a command that dies with this process.
func (s *docSession) start(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.WaitDelay = time.Second
	if err := process.StartTied(cmd); err != nil {
		s.t.Fatal(err)
	}
}

func (s *docSession) close() {
	for _, p := range append(s.drills, s.agent) {
		if p != nil && p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
	}
	os.RemoveAll(s.pins())
}

var (
	systemFolder  = regexp.MustCompile(`(^|[ :=])/(etc|var/log)/`)
	callsKernosis = regexp.MustCompile(`(^|[ /])kernosis((?: [a-z][a-z-]*)+)`)
)

// here replaces paths, addresses and run names of the page with those of the session.
func (s *docSession) here(text string) string {
	text = strings.ReplaceAll(text, docListen, s.listen)
	for shown, is := range s.runs {
		text = strings.ReplaceAll(text, shown, is)
	}
	text = systemFolder.ReplaceAllString(text, "${1}"+s.root+"/$2/")
	agent := false
	text = callsKernosis.ReplaceAllStringFunc(text, func(call string) string {
		before, words, _ := strings.Cut(call, "kernosis ")
		cmd, rest, err := newRoot().Find(strings.Fields(words))
		if err != nil {
			return call
		}
		agent = agent || cmd.Name() == "run"
		return before + strings.Join(append(append([]string{cmd.CommandPath()}, s.flags(cmd)...), rest...), " ")
	})
	if agent { // flags configures the kernel's log
		text = strings.Replace(text, " --log kmsg", "", 1)
	}
	return text
}

// flags returns flags that make a command use the session's folders.
func (s *docSession) flags(cmd *cobra.Command) (flags []string) {
	switch cmd.CommandPath() {
	case "kernosis config print": // it would print them
		return nil
	case "kernosis run":
		// The kernel's log may have lines of other tests.
		flags = append(flags, "--config="+filepath.Join(s.root, "new-lines-only.yaml"))
	}
	for _, name := range []string{"state-dir", "targets-dir"} {
		if f := cmd.Flag(name); f != nil {
			flags = append(flags, "--"+name+"="+filepath.Join(s.root, f.DefValue))
		}
	}
	if cmd.Flag("pin-root") != nil {
		flags = append(flags, "--pin-root="+s.pins())
	}
	if cmd.Flag("listen") != nil {
		flags = append(flags, "--listen="+s.listen)
	}
	return flags
}

func (s *docSession) pins() string {
	return filepath.Join(filepath.Dir(bpf.DefaultPinRoot), fmt.Sprintf("kernosis-docs-%d", os.Getpid()))
}

// there reverses here, for output.
func (s *docSession) there(text string) string {
	host, err := os.Hostname()
	if err != nil {
		s.t.Fatal(err)
	}
	text = strings.ReplaceAll(text, s.root, "")
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllString(text, "vm")
}

// run runs a statement in the shell and returns its output.
func (s *docSession) run(statement string) string {
	s.t.Helper()
	mark := "end-of-statement-" + strconv.Itoa(len(s.out.String()))
	fmt.Fprintf(s.stdin, "(exit %d); { %s\n} </dev/null; echo '%s' $?\n", s.code, s.here(statement), mark)
	end := regexp.MustCompile(mark + ` (\d+)\n`)
	text, ok := s.out.Wait(time.Minute, func(text string) bool { return end.MatchString(text[s.read:]) })
	text = text[s.read:]
	if !ok {
		s.t.Fatalf("%s: has not ended; its output until now:\n%s", statement, text)
	}
	m := end.FindStringSubmatchIndex(text)
	s.read += m[1]
	s.code, _ = strconv.Atoi(text[m[2]:m[3]]) // digits
	return s.there(text[:m[0]])
}

// folder returns the shell's working folder.
func (s *docSession) folder() string {
	code := s.code
	dir := filepath.Join(s.root, strings.TrimSpace(s.run("pwd")))
	s.code = code
	return dir
}

// write writes a file, below the folder unless its path is absolute.
func (s *docSession) write(path, folder, text string) {
	s.t.Helper()
	if filepath.IsAbs(path) {
		folder = s.root
	}
	write(s.t, folder, path, text)
}

// beside starts a statement in parallel to the shell, in its folder.
func (s *docSession) beside(statement docStatement) *docProcess {
	s.t.Helper()
	p := &docProcess{statement: statement, used: map[int]bool{}}
	p.cmd = exec.Command("sh", "-c", "exec "+s.here(statement.text))
	p.cmd.Dir = s.folder()
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = s.env, &p.out, &p.out
	s.start(p.cmd)
	return p
}

// startAgent ends a running agent, and starts a new one. It returns when that is ready.
func (s *docSession) startAgent(statement docStatement) {
	s.t.Helper()
	s.stopAgent()
	s.agent = s.beside(statement)
	testenv.UntilShown(s.t, "the agent is ready", 30*time.Second, func() (bool, string) {
		resp, err := http.Get("http://" + s.listen + "/readyz")
		if err != nil {
			return false, fmt.Sprintf("%v\n%s", err, s.agent.out.String())
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK, string(text)
	})
}

// stopAgent ends drills and the agent as Ctrl-C does.
func (s *docSession) stopAgent() {
	s.t.Helper()
	s.endDrills()
	if s.agent == nil {
		return
	}
	if err := s.agent.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Error(err)
	}
	if err := s.agent.cmd.Wait(); err != nil {
		s.t.Errorf("%s: %v\n%s", s.agent.statement.text, err, s.agent.out.String())
	}
	s.agent = nil
}

// endDrills waits for the end of injected faults, and compares their output.
func (s *docSession) endDrills() {
	s.t.Helper()
	for _, p := range s.drills {
		if err := p.cmd.Wait(); err != nil {
			s.t.Errorf("%s: %v", p.statement.text, err)
		}
		s.compare(&p.statement, p.out.String())
	}
	s.drills = nil
}

// compare compares output with the page's output, if it has any.
func (s *docSession) compare(statement *docStatement, out string) {
	s.t.Helper()
	if statement.output == nil {
		return
	}
	shown := strings.Join(statement.output, "\n")
	runs, ok := matchesDoc(shown, s.there(out))
	if !ok {
		s.t.Errorf("%s\nprints\n%s\nnot\n%s", statement.text, s.there(out), shown)
	}
	maps.Copy(s.runs, runs)
}

// agentShows waits until the agent has printed lines.
func (s *docSession) agentShows(place string, lines []string) {
	s.t.Helper()
	missing := ""
	text, ok := s.agent.out.Wait(20*time.Second, func(text string) (ok bool) {
		missing, ok = linesOfDoc(lines, s.there(text), s.agent.used)
		return ok
	})
	if !ok {
		s.t.Fatalf("%s: the agent does not print\n%s\nbut\n%s", place, missing, s.there(text))
	}
}
