// Package plugin runs check programs: scripts and binaries that an administrator
// has written, which say by their exit code whether something is wrong.
//
// It is the counterpart of node-problem-detector's custom-plugin-monitor and
// keeps its contract: exit code 0 is OK, 1 is a problem, anything else, an end by
// a signal included, is unknown; what the program writes to its standard output is
// the message. A [Runner] runs the checks of one configuration and hands each
// [Result] to a function; it knows nothing of conditions and events.
//
// # What bounds a program
//
// Package process has it: time, output, processes and their number, the agent's life.
// Where [Config.Cgroup] is set each check has a control group of its own. A program in
// uninterruptible sleep can't be killed. It is reported as unknown, gives its place up to
// other checks and is not run again until it has ended, and what it has started too.
//
// # Zombies
//
// The program itself is always waited for. Its orphans belong to init. Where the
// agent is that itself, as process 1 of a container, [ReapOrphans] waits for them.
package plugin
