// Package process runs an untrusted program once: a check program (package plugin) or the script
// of an operation. The program and everything that it starts have ended when [Program.Run]
// returns.
//
// # Limits of a program
//
//   - Time: at the limit the whole process group gets SIGKILL. No process escapes by forking,
//     because copy_process adds the child to the group while it holds the signal lock. What is
//     left of the group after the program's own end is killed as well.
//   - Output: [Program.Keep] bytes of each stream are kept. The rest is read, counted and
//     dropped, so that the program doesn't block. A process that has left the group and keeps
//     the pipe open doesn't block the run: the pipe is closed.
//   - Processes: RLIMIT_NPROC doesn't help, because it counts all processes of a user and
//     doesn't apply to root. In a control group (v2) of its own, a [Group], the kernel limits
//     them by pids.max if that controller is available; if not, the processes are counted ten
//     times a second and a group with too many is killed. At the end cgroup.kill also kills
//     those that left the process group by setsid; before Linux 5.14 the group is frozen and
//     its processes are killed one by one. Without a control group, a fork bomb is bounded by
//     the time limit and the pids limit of the agent's own group, and a process that calls
//     setsid outlives the program.
//   - Memory: memory.max of the control group, if that controller is available.
//   - The agent's life: a program gets SIGKILL when the agent dies (PR_SET_PDEATHSIG); what a
//     killed agent left in a control group is killed by the next one ([OpenGroups]).
//   - A program in uninterruptible sleep can't be killed: [ErrStuck]. [Runs] does not start a
//     program again while such a run, or anything it has left, still exists.
//
// # Zombies
//
// The program itself is always waited for, but only after its group was killed, so that its number
// can't have been reused by then. Its orphans are inherited by init.
//
// The package is a leaf: it does not depend on checks, operations and events.
package process
