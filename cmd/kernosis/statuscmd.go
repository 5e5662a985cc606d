package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
)

// Default state folder and endpoint of an agent.
const (
	defaultStateDir = "/var/lib/kernosis"
	defaultEndpoint = "127.0.0.1:20257"
)

// agentAccess holds the flags for reaching this machine's agent.
type agentAccess struct {
	stateDir, endpoint, tokenFile string

	reads bounded.Calls // of the state folder
}

func (a *agentAccess) flags(fs *pflag.FlagSet) {
	fs.StringVar(&a.stateDir, "state-dir", "", "state `folder` of the agent (default: of the agent that runs here, else "+defaultStateDir+")")
	fs.StringVar(&a.endpoint, "endpoint", "", "`address` or URL of the agent's /healthz and /metrics (default: of the agent that runs here, else "+defaultEndpoint+")")
	fs.StringVar(&a.tokenFile, "token-file", "", "`file` with a bearer token for /metrics, which the agent requires at addresses other than loopback; sent to this machine only")
}

// find looks for the agent. It returns nil if none runs or it may not be inspected.
func (a *agentAccess) find() (*agentProcess, status.Config, error) {
	p, err := findAgent(a.stateDir)
	if err != nil {
		return nil, status.Config{}, err
	}
	c := status.Config{DeadAfter: deadAfter, StateFile: agent.EngineFile, StateDir: cmp.Or(a.stateDir, defaultStateDir), Reads: &a.reads}
	at := defaultEndpoint
	if p != nil {
		c.PID = p.pid
		if p.err == nil {
			c.StateDir, at = p.config.StateDir, p.config.Endpoint()
		} else {
			c.Unread = append(c.Unread, status.Unread{What: "settings of the agent", Why: p.err.Error()})
		}
	}
	c.Journal = filepath.Join(c.StateDir, agent.JournalDir)
	c.Node = nodeOfState(&a.reads, status.ReadWithin, c.StateDir)
	if at = cmp.Or(a.endpoint, at); at != "" {
		token, err := a.token()
		if err != nil {
			return nil, c, err
		}
		if c.Endpoint, err = status.NewEndpoint(at, token); err != nil {
			return nil, c, fmt.Errorf("--endpoint: %w", err)
		}
	}
	return p, c, nil
}

const maxToken = 64 << 10

func (a *agentAccess) token() (string, error) {
	if a.tokenFile == "" {
		return "", nil
	}
	raw, err := document.ReadAtMost(a.tokenFile, maxToken)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

func newStatus() *cobra.Command {
	var access agentAccess
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show problems, conditions, sources, losses and cost of the agent on this machine",
		Long: `Show on one screen whether an agent runs on this machine, which problems are firing, the
node's conditions, the state of each source, what was lost, the last writes to the API
server, and what the agent costs. docs/status.md explains the output.

Exit code: 0 healthy; 1 a problem is firing, a condition is True or Unknown, a source is
blind, or the agent is not healthy; 2 no agent is running, or it does not answer.`,
		Example: `  sudo kernosis status
  kubectl -n kernosis exec POD -- kernosis status     # POD of the agent on that node
  kernosis status -o json | jq -r '.problems[].subject'`,
		Args: cobra.NoArgs,
	}
	format := output.Add(cmd)
	access.flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, c, err := access.find()
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
		w := cmd.OutOrStdout()
		state := status.NewReader(c).Read(cmd.Context())
		err = format.Write(w, state, func() error {
			return state.WriteText(w, status.View{Wide: format.Is(output.Wide), Cells: cells(w, format), Colours: output.ColoursOf(w)})
		})
		if err != nil {
			return output.Failed(err)
		}
		return statusExit(state)
	}
	return cmd
}

// cells returns the maximum width of lines; 0: unlimited.
func cells(w io.Writer, format *output.Format) int {
	if format.Is(output.Wide) {
		return 0
	}
	return terminalWidth(w)
}

func statusExit(s *status.State) error {
	switch s.Outcome {
	case status.Problems:
		return &output.ExitError{Code: output.ExitFailed}
	case status.Unknown:
		return &output.ExitError{Code: output.ExitInput}
	}
	return nil
}

// minInterval bounds the interval because a read of journal and metrics takes some milliseconds.
const minInterval = 200 * time.Millisecond

func newTop() *cobra.Command {
	var t top
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show problems and what the agent costs, refreshed until q or Ctrl-C",
		Long: `Show the problems that are firing on this machine, unhealthy conditions and sources, and what
the agent costs. The screen is refreshed until q or Ctrl-C. Without a terminal it is
printed once, with the exit code of "kernosis status".`,
		Example: `  sudo kernosis top
  kubectl -n kernosis exec -it POD -- kernosis top --interval 5s    # POD of the agent on that node`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.interval < minInterval {
				return fmt.Errorf("--interval: %v: want at least %v", t.interval, minInterval)
			}
			t.in, t.out, t.err = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return t.run(cmd.Context())
		},
	}
	t.access.flags(cmd.Flags())
	cmd.Flags().DurationVar(&t.interval, "interval", 2*time.Second, "`duration` between refreshes")
	return cmd
}

type top struct {
	access   agentAccess
	interval time.Duration
	in       io.Reader
	out, err io.Writer

	pid    int
	reader *status.Reader
}

func (t *top) run(ctx context.Context) error {
	screen, keyboard := output.Terminal(t.out), output.Terminal(t.in)
	if screen == nil || keyboard == nil {
		s, err := t.read(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(t.err, "kernosis: top: not a terminal: printing once")
		if err := s.WriteTop(t.out, status.View{Cells: terminalWidth(t.out), Colours: output.ColoursOf(t.out)}); err != nil {
			return output.Failed(err)
		}
		return statusExit(s)
	}
	before, err := term.MakeRaw(int(keyboard.Fd())) //nolint:gosec // a file's descriptor
	if err != nil {
		return output.Failed(fmt.Errorf("top: %w", err))
	}
	const begin, end = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l" // another screen, without a cursor
	fmt.Fprint(screen, begin)
	err = t.live(ctx, screen, keys(keyboard))
	fmt.Fprint(screen, end)
	return output.Failed(errors.Join(err, term.Restore(int(keyboard.Fd()), before))) //nolint:gosec // likewise
}

// keys returns a channel of typed keys. It is closed when the terminal ends.
func keys(from io.Reader) <-chan byte {
	typed := make(chan byte)
	go func() {
		defer close(typed)
		var b [1]byte
		for {
			if n, err := from.Read(b[:]); err != nil {
				return
			} else if n > 0 {
				typed <- b[0]
			}
		}
	}()
	return typed
}

// live draws until ctx ends or a key quits. It does not wait for a running read then.
func (t *top) live(ctx context.Context, screen *os.File, typed <-chan byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		state *status.State
		err   error
	}
	read := make(chan answer, 1)
	look := func() {
		s, err := t.read(ctx)
		read <- answer{s, err}
	}
	go look()
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	var due <-chan time.Time // nil while a read goes on
	for {
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-typed: // a raw terminal passes Ctrl-C and Ctrl-D on, as 3 and 4
			if !ok || key == 'q' || key == 'Q' || key == 3 || key == 4 {
				return nil
			}
		case a := <-read:
			if a.err != nil {
				return a.err
			}
			if err := t.draw(screen, a.state); err != nil {
				return err
			}
			due = tick.C
		case <-due:
			due = nil
			go look()
		}
	}
}

// read reads the agent's state. It looks for the agent first if that is not known or has ended.
func (t *top) read(ctx context.Context) (*status.State, error) {
	if _, err := os.Stat(procFile(t.pid, "")); t.reader == nil || t.pid == 0 || err != nil {
		_, c, err := t.access.find()
		if err != nil {
			return nil, fmt.Errorf("top: %w", err)
		}
		if t.reader == nil || c.PID != t.pid {
			t.pid, t.reader = c.PID, status.NewReader(c)
		}
	}
	return t.reader.Read(ctx), nil
}

func (t *top) draw(screen *os.File, s *status.State) error {
	width, height, err := term.GetSize(int(screen.Fd())) //nolint:gosec // a file's descriptor
	if err != nil || width < 1 || height < 3 {
		width, height = 80, 24
	}
	var b strings.Builder
	if err := s.WriteTop(&b, status.View{Cells: width, Rows: height, Colours: output.ColoursOf(screen)}); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	room := height - 2
	if len(lines) > room {
		lines = append(lines[:room-1], fmt.Sprintf("and %s more", display.Count(len(lines)-room+1, "line")))
	}
	foot := fmt.Sprintf("%s, every %s; q quits", s.At.Format(time.TimeOnly), display.Exact(t.interval))
	const home, toEndOfLine, toEnd = "\x1b[H", "\x1b[K\r\n", "\x1b[J"
	_, err = io.WriteString(screen, home+strings.Join(lines, toEndOfLine)+toEndOfLine+toEndOfLine+foot+"\x1b[K"+toEnd)
	return err
}
