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
//   - Time: at its limit the whole process group gets SIGKILL. A fork is in the
//     group before it is or is not killed (copy_process holds the signal lock), so
//     none gets away by forking. What is left of the group after the program's own
//     end is killed as well.
//   - Output: [maxOutput] bytes of each stream are kept, the rest is read, counted
//     and dropped, so that the program doesn't block. A process that has left the
//     group and holds the pipe open holds up nothing: the pipe is closed.
//   - Processes: RLIMIT_NPROC doesn't help, because it counts all of a user's
//     processes and doesn't bind root. Where [Config.Cgroup] is set each check has
//     a control group (v2) of its own: the kernel bounds it by pids.max where that
//     controller is there; where it is not, the processes are counted ten times a
//     second and a group with more than [Config.MaxProcesses] is killed. At the end
//     cgroup.kill takes also those that left the process group. Without a control
//     group the time limit and the pids limit of the agent's own group bound a fork
//     bomb, and a process that calls setsid outlives its check.
//   - The agent's life: a program gets SIGKILL when the agent dies
//     (PR_SET_PDEATHSIG); what a killed agent left in a control group is killed by
//     the next one.
//   - A program in uninterruptible sleep can't be killed. It is told as unknown,
//     gives its place up to other checks and is not run again until it has ended.
//
// # Zombies
//
// The program itself is always waited for, but only after its group was killed, so
// that its number can't belong to somebody else by then. Its orphans belong to
// init. Where the agent is that itself, as process 1 of a container, [ReapOrphans]
// waits for them.
package plugin
