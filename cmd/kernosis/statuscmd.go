package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/bounded"
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

// maxToken bounds the size of a token file, in bytes.
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
	case status.Healthy:
	}
	return nil
}
