package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/display"
)

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

// top repeatedly shows the state of an agent.
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
		case key, ok := <-typed:
			if !ok || quits(key) {
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

// quits reports whether a key ends top: q, or Ctrl-C and Ctrl-D, which a raw terminal passes on.
func quits(key byte) bool { return key == 'q' || key == 'Q' || key == 3 || key == 4 }

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

// draw writes a state over the previous one.
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
