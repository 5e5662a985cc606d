package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// openTerminal returns a terminal, and the other end, which a person uses.
func openTerminal(t *testing.T) (terminal, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 100}); err != nil {
		t.Fatal(err)
	}
	return terminal, person
}

// screenshot collects the terminal's output.
type screenshot struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screenshot) follow(person *os.File) {
	b := make([]byte, 4096)
	for {
		n, err := person.Read(b)
		s.mu.Lock()
		s.text.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screenshot) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// On a terminal top draws repeatedly until a key ends it, and restores the terminal.
func TestTopOnATerminal(t *testing.T) {
	for _, key := range []string{"q", "\x03"} {
		terminal, person := openTerminal(t)
		before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		seen := &screenshot{}
		go seen.follow(person)
		top := &top{access: agentAccess{stateDir: t.TempDir(), endpoint: "127.0.0.1:1"}, interval: minInterval, in: terminal, out: terminal, err: terminal}
		ended := make(chan error, 1)
		go func() { ended <- top.run(t.Context()) }()
		testenv.UntilShown(t, "two drawings", 20*time.Second, func() (bool, string) {
			return strings.Count(seen.String(), "every 200ms; q quits") >= 2, seen.String()
		})
		if _, err := person.WriteString("x" + key); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(testenv.Within(20 * time.Second)):
			t.Fatalf("%q does not end it", key)
		}
		testenv.UntilShown(t, "the screen of before", 20*time.Second, func() (bool, string) {
			return strings.HasSuffix(seen.String(), "\x1b[?25h\x1b[?1049l"), seen.String()
		})
		if text := seen.String(); !strings.HasPrefix(text, "\x1b[?1049h\x1b[?25l\x1b[Hnode ") || !strings.Contains(text, "no agent is running") {
			t.Errorf("%q", text)
		}
		if after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS); err != nil || *after != *before {
			t.Errorf("the terminal is left as %+v, %v", after, err)
		}
	}
}

// A signal ends top too.
func TestTopEndsWithItsContext(t *testing.T) {
	terminal, person := openTerminal(t)
	go (&screenshot{}).follow(person)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	top := &top{access: agentAccess{stateDir: t.TempDir(), endpoint: "127.0.0.1:1"}, interval: time.Hour, in: terminal, out: terminal, err: terminal}
	if err := top.run(ctx); err != nil {
		t.Error(err)
	}
}

// Without a terminal top prints the state once.
func TestTopWithoutATerminal(t *testing.T) {
	code, out := command(t, "top", "--state-dir", t.TempDir(), "--endpoint", "127.0.0.1:1")
	if code != output.ExitInput || !strings.Contains(out, "no agent is running") || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d: %q", code, out)
	}
	if code, _ := command(t, "top", "--interval", "1ms"); code != output.ExitInput {
		t.Error(code)
	}
}
