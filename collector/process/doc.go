// Package process runs a program of somebody else once, such that it and all that it
// starts is over when [Program.Run] returns: check programs (package plugin) and the
// scripts of operations.
//
// # What bounds a program
//
//   - Time: at its limit the whole process group gets SIGKILL. A fork is in the
//     group before it is or is not killed (copy_process holds the signal lock), so
//     none gets away by forking. What is left of the group after the program's own
//     end is killed as well.
//   - Output: [Program.Keep] bytes of each stream are kept, the rest is read, counted
//     and dropped, so that the program doesn't block. A process that has left the
//     group and holds the pipe open holds up nothing: the pipe is closed.
//   - Processes: RLIMIT_NPROC doesn't help, because it counts all of a user's
//     processes and doesn't bind root. In a control group (v2) of its own, a [Group],
//     the kernel bounds it by pids.max where that controller is there; where it is not,
//     the processes are counted ten times a second and a group with too many is killed.
//     At the end cgroup.kill takes also those that left the process group by setsid;
//     before Linux 5.14 the group is frozen and its processes are killed one by one.
//     Without a control group the time limit and the pids limit of the agent's own group
//     bound a fork bomb, and a process that calls setsid outlives the program.
//   - Memory: memory.max of the control group, where that controller is there.
//   - The agent's life: a program gets SIGKILL when the agent dies
//     (PR_SET_PDEATHSIG); what a killed agent left in a control group is killed by
//     the next one ([OpenGroups]).
//   - A program in uninterruptible sleep can't be killed: [ErrStuck]. One that is run again
//     and again, by [Runs], is not started beside such a run, nor beside what it has left.
//
// # Zombies
//
// The program itself is always waited for, but only after its group was killed, so
// that its number can't belong to somebody else by then. Its orphans belong to
// init.
//
// The package is a leaf: it knows nothing of checks, operations and events.
package process
