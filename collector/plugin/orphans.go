package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// orphanGrace is how long a zombie child must exist to be considered an inherited orphan: children
// of our own are waited for at once.
const orphanGrace = 5 * time.Second

// ReapOrphans waits for orphans until ctx ends, if this process inherits them as process 1 of a
// container. Otherwise it returns at once. One call serves the whole process, whichever part
// started them.
//
// It must not wait for a child that another part of this process waits for. Time distinguishes
// them: an orphan is a zombie that nobody has waited for during some seconds.
func ReapOrphans(ctx context.Context, log *slog.Logger) error {
	if os.Getpid() != 1 {
		return nil
	}
	proc, err := procfs.NewFS("/proc")
	if err != nil {
		return fmt.Errorf("reap orphans: %w", err)
	}
	return reapOrphans(ctx, proc, orphanGrace, log)
}

func reapOrphans(ctx context.Context, proc procfs.FS, grace time.Duration, log *slog.Logger) error {
	ticker := time.NewTicker(grace)
	defer ticker.Stop()
	o := orphans{proc: proc}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if n := o.look(); n > 0 {
			log.Debug("reaped orphans of checks", "processes", n)
		}
	}
}

// orphans are the zombies that are children of this process.
type orphans struct {
	proc procfs.FS
	seen map[zombie]bool // at the last look
}

// zombie identifies a process by number and start time, because numbers are reused.
type zombie struct {
	pid   int
	start uint64
}

// look waits for the zombies that existed already at the last look, and returns how many there
// were.
func (o *orphans) look() (reaped int) {
	now := map[zombie]bool{}
	if anyZombie() {
		now = o.find()
	}
	for z := range now {
		if !o.seen[z] {
			continue
		}
		if pid, err := unix.Wait4(z.pid, nil, unix.WNOHANG, nil); err == nil && pid == z.pid {
			reaped++
			delete(now, z)
		}
	}
	o.seen = now
	return reaped
}

// anyZombie reports whether there is any zombie child, with a single system call.
func anyZombie() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// find returns the zombie children.
func (o *orphans) find() map[zombie]bool {
	found := map[zombie]bool{}
	all, err := o.proc.AllProcs()
	if err != nil {
		return found
	}
	for _, p := range all {
		if st, err := p.Stat(); err == nil && st.State == "Z" && st.PPID == os.Getpid() {
			found[zombie{pid: p.PID, start: st.Starttime}] = true
		}
	}
	return found
}
