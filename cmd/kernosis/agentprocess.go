package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// agentProcess is an agent running on this machine.
type agentProcess struct {
	pid    int
	config agent.Config
	err    error // why config could not be read
}

// findAgent returns the agent running here, or nil if there is none or it may not be inspected. With
// stateDir it returns the agent of that folder. Otherwise, if several agents run, it returns the one
// of the default folder. The agent must be in this mount namespace, so that its paths are valid
// here. It must run as root or this user, because any other user may give a process this name.
func findAgent(stateDir string) (*agentProcess, error) {
	pids, err := hostfs.New("/").PIDs()
	if err != nil {
		return nil, err
	}
	if stateDir != "" { // to compare it with the agent's absolute path
		if stateDir, err = filepath.Abs(stateDir); err != nil {
			return nil, err
		}
	}
	var found []*agentProcess
	for _, pid := range pids {
		args := agentArgs(pid)
		if args == nil {
			continue
		}
		p := &agentProcess{pid: pid}
		p.config, p.err = configOf(pid, args)
		if stateDir == "" || p.err == nil && p.config.StateDir == stateDir {
			found = append(found, p)
		}
	}
	byDefault := func(p *agentProcess) bool { return p.config.StateDir == defaultStateDir }
	if i := slices.IndexFunc(found, byDefault); i >= 0 {
		return found[i], nil
	}
	if len(found) > 1 {
		var choices []string
		for _, p := range found {
			choices = append(choices, fmt.Sprintf("%s (pid %d)", p.config.StateDir, p.pid))
		}
		return nil, errors.New("several agents are running: choose one with --state-dir: " + strings.Join(choices, ", "))
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // that none runs is no error
	}
	return found[0], nil
}

// maxCommandLine bounds what is read of a process' command line or environment.
const maxCommandLine = 64 << 10

// agentArgs returns the arguments of process pid if it is a trusted agent, or else nil.
func agentArgs(pid int) []string {
	if pid == os.Getpid() {
		return nil
	}
	argv, err := procStrings(pid, "cmdline")
	if err != nil || len(argv) == 0 || !strings.HasPrefix(filepath.Base(argv[0]), "kernosis") {
		return nil
	}
	args := calledAs(argv)
	if len(args) == 0 || args[0] != "agent" && args[0] != "run" || !trusted(pid) {
		return nil
	}
	return args
}

// trusted reports whether a process is run by root or this user, in this mount namespace.
func trusted(pid int) bool {
	info, err := os.Stat(procFile(pid, ""))
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return false
	}
	its, err := os.Readlink(procFile(pid, "ns/mnt"))
	ours, ownErr := os.Readlink("/proc/self/ns/mnt")
	return err == nil && ownErr == nil && its == ours
}

func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// procStrings reads a file in /proc of NUL-terminated strings.
func procStrings(pid int, name string) ([]string, error) {
	raw, err := document.ReadAtMost(procFile(pid, name), maxCommandLine)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return nil, nil // a kernel thread
	}
	return strings.Split(string(bytes.TrimSuffix(raw, []byte{0})), "\x00"), nil // the last may be empty
}

// configOf reads the configuration with which an agent's process was started.
func configOf(pid int, args []string) (agent.Config, error) {
	var cmd *cobra.Command
	if args[0] == "run" {
		cmd = newRun()
	} else {
		cmd = newAgentCommand()
	}
	if err := cmd.ParseFlags(args[1:]); err != nil {
		return agent.Config{}, err
	}
	environ, err := procStrings(pid, "environ")
	if err != nil {
		return agent.Config{}, err
	}
	environ = slices.DeleteFunc(environ, func(v string) bool { return !strings.HasPrefix(v, config.EnvPrefix) })
	dir, err := os.Readlink(procFile(pid, "cwd"))
	if err != nil {
		return agent.Config{}, err
	}
	if f := cmd.Flags().Lookup("config"); f.Changed && !filepath.IsAbs(f.Value.String()) {
		if err := f.Value.Set(filepath.Join(dir, f.Value.String())); err != nil {
			return agent.Config{}, err
		}
	}
	cfg, err := agent.Load(cmd.Flags(), environ)
	paths := []*string{&cfg.StateDir, &cfg.RulesDir, &cfg.Mutes}
	for _, files := range [][]string{cfg.NPD.SystemLog, cfg.NPD.CustomPlugin, cfg.NPD.SystemStats} {
		for i := range files {
			paths = append(paths, &files[i])
		}
	}
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	cfg.StateDir = filepath.Clean(cfg.StateDir)
	return cfg, err
}

// mutesPath returns the agent's file of mutes, or the one in stateDir if no agent is known to run.
func (p *agentProcess) mutesPath(stateDir string) string {
	if p != nil && p.err == nil {
		return p.config.MutesPath()
	}
	return filepath.Join(stateDir, agent.MutesFile)
}
