package plugin

import (
	"context"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// orphanGrace is how long orphans must be zombies before they are reaped; other parts reap their own
// children at once.
const orphanGrace = 5 * time.Second

// ReapOrphans waits for orphans until ctx ends, if this process inherits them as process 1 of a container.
// Otherwise it returns at once. One call serves the whole process.
//
// It must not wait for a child that another part of this process waits for. Time distinguishes
// them: an orphan is a zombie that nobody has waited for during some seconds.
func ReapOrphans(ctx context.Context, log *slog.Logger) error {
	if os.Getpid() == 1 {
		reapOrphans(ctx, orphanGrace, log)
	}
	return nil
}

// reapOrphans waits, each grace, for the zombies that existed already at the last look.
func reapOrphans(ctx context.Context, grace time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(grace)
	defer ticker.Stop()
	var seen map[zombie]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, reaped := zombies(), 0
		for z := range now {
			if !seen[z] {
				continue
			}
			if pid, err := unix.Wait4(z.pid, nil, unix.WNOHANG, nil); err == nil && pid == z.pid {
				reaped++
				delete(now, z)
			}
		}
		seen = now
		if reaped > 0 {
			log.Debug("reaped orphans of checks", "processes", reaped)
		}
	}
}

// zombie identifies a process by number and start time, because numbers are reused.
type zombie struct {
	pid   int
	start time.Duration
}

// zombies returns the zombie children of this process.
func zombies() map[zombie]bool {
	// A single system call shows whether there is any.
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo == 0 {
		return nil
	}
	proc := hostfs.New("")
	pids, err := proc.PIDs()
	if err != nil {
		return nil
	}
	found := map[zombie]bool{}
	for _, pid := range pids {
		if st, err := proc.Stat(pid); err == nil && st.State == 'Z' && int(st.PPID) == os.Getpid() {
			found[zombie{pid: pid, start: st.StartTime}] = true
		}
	}
	return found
}
