package collector

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// remountPatience is how long a filesystem may be read-only under writable mounts without a known
// error. "mount -o remount,ro" makes the filesystem read-only, then flushes its journal, and only
// then makes the mount read-only: meanwhile the table looks like after an error. A flush takes
// milliseconds, on a busy disk some seconds.
const remountPatience = 5 * time.Second

// holdBack returns the changes that can be reported now. The others may be half of an
// administrator's remount: held contains them, with the time since when, and again is the time to
// the next check.
func (m *mountSource) holdBack(changes []change, now time.Time) (ready []change, held map[fsKey]time.Time, again time.Duration) {
	held = map[fsKey]time.Time{}
	for _, c := range changes {
		since, ok := m.held[c.key]
		if !ok {
			since = now
		}
		wait := remountPatience - now.Sub(since)
		if !c.faulty || c.reason != reasonSuperReadOnly || wait <= 0 || m.suspected(c.key) {
			ready = append(ready, c)
			continue
		}
		held[c.key] = since
		again = sooner(again, wait)
	}
	return ready, held, again
}

// suspected reports whether the filesystem had an error recently.
func (m *mountSource) suspected(key fsKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.suspects[key]
	return ok
}

// keep returns the table to compare the next one with: now, but with the old mounts of held-back
// filesystems, so that these are a change again if it lasts.
func keep(old, now []hostfs.Mount, held map[fsKey]time.Time) []hostfs.Mount {
	if len(held) == 0 {
		return now
	}
	isHeld := func(m hostfs.Mount) bool {
		_, ok := held[fsKey{m.Major, m.Minor}]
		return ok && onDevice(&m)
	}
	kept := slices.DeleteFunc(slices.Clone(now), isHeld)
	for _, m := range old {
		if isHeld(m) {
			kept = append(kept, m)
		}
	}
	return kept
}

// sooner returns the shorter of two waits; 0 means no wait.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
