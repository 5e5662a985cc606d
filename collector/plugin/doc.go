// Package plugin runs check programs: scripts and binaries of an administrator whose exit code
// reports whether there is a problem.
//
// It replaces node-problem-detector's custom-plugin-monitor with the same contract. Exit code 0 is
// OK, 1 is a problem; anything else, including termination by a signal, is unknown. The program's
// standard output is the message. A [Runner] runs the checks of one configuration and passes each
// [Result] to a function; it does not handle conditions and events.
//
// # Limits of a program
//
// Package process enforces them: time, output, number of processes, and that they end with the
// agent. If [Config.Cgroup] is set, each check has a control group of its own. A program in
// uninterruptible sleep can't be killed. It is reported as unknown, frees its slot for other
// checks, and is not run again until it and everything it started has ended.
//
// # Zombies
//
// The program itself is always waited for. Its orphans are inherited by init. If the agent itself
// is init, as process 1 of a container, [ReapOrphans] waits for them.
package plugin
