package collector

import (
	"context"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// mountSource reports when a filesystem mounted for writing refuses writes, and when that ends. It
// also maintains the mount table from which devices get their mounts.
//
// The kernel notifies of mount changes, but not of an error that ends writing: since 6.12 ext4 sets
// its own flag without a notification. So the table is also read periodically and after an error.
type mountSource struct {
	env *environment

	mu       sync.Mutex
	suspects map[fsKey]suspect
	dropped  uint64                  // errors and faults for which there was no room, not reported yet
	gone     map[fsKey]time.Duration // when, since boot, an unmount was detected, kept for lateFor
	wake     chan struct{}           // has a token while suspects or asked have new entries
	watched  map[string]bool         // types whose errors Notify gets
	asked    requests

	// Used by Run's goroutine only.
	last        []hostfs.Mount      // the table that the next one is compared with
	looked      time.Time           // when the last table was read
	filesystems map[fsKey]mounted   // of the last table
	keys        []fsKey             // in the table's order
	held        map[fsKey]time.Time // since when changes are held back, see [mountSource.holdBack]; zero: for want of room
	reported    map[fsKey]*refusing
	inquiries   map[fsKey]*inquiry       // open ones, see [mountSource.ask]
	hanging     map[fsKey]*bounded.Calls // filesystems that have not answered askAbout
	waits       int                      // of this look, for answers that did not come
	known       bool                     // reportSource was called
	down        string                   // why it reported the source as down; empty: it is up
}

// refusing is a filesystem that was reported as refusing writes.
type refusing struct {
	reported time.Time
	again    bool      // the table could not be read meanwhile: report it again if it lasts
	mounted  time.Time // for an ext4 that shows nothing; zero: unknown
	device   event.Device
	data     event.MountData
}

const (
	// mountEvery is how often the table is read without a cause. A filesystem that turns read-only
	// without a notification is reported after at most this time.
	mountEvery = 10 * time.Second
	// suspectSoon is when the table is read once more after an error, besides at once: the kernel
	// reports the error just before it acts on it.
	suspectSoon = 20 * time.Millisecond
	// suspectFor is how long an error may take to become visible. After that it never will.
	suspectFor = time.Second
	// lateFor is how late an error may be reported.
	lateFor = time.Minute
	// maxSuspects bounds the devices that are waited for, and maxRefusing the devices that were
	// reported. More than that at once share one fault of the devices below.
	maxSuspects = 64
	maxRefusing = 256
)

func newMountSource(env *environment) *mountSource {
	return &mountSource{
		env: env, suspects: map[fsKey]suspect{}, gone: map[fsKey]time.Duration{}, wake: make(chan struct{}, 1),
		reported: map[fsKey]*refusing{}, inquiries: map[fsKey]*inquiry{}, hanging: map[fsKey]*bounded.Calls{},
	}
}

// suspect is a filesystem that had an error.
type suspect struct {
	since time.Time     // when the first error was reported here
	last  time.Duration // since boot, of the latest error
	ends  bool          // one of them ends writing, whatever the errors= policy is
}

// late reports whether the kernel had enough time to show that the filesystem refuses writes.
func (s suspect) late(now time.Time) bool { return now.Sub(s.since) >= suspectFor }

// Notify reports that the filesystem on a device (the kernel's own dev_t) had an error at a time since boot.
// ends says that it accepts no writes from then on. It does not block; concurrent use is safe.
func (m *mountSource) Notify(dev uint32, at time.Duration, ends bool) {
	major, minor := hostfs.SplitKernelDev(dev)
	m.mu.Lock()
	defer m.mu.Unlock()
	key := fsKey{major, minor}
	if at < m.gone[key] {
		return // from a mount that is gone
	}
	if s, ok := m.suspects[key]; ok {
		s.ends = s.ends || ends
		s.last = max(s.last, at) // records of several CPUs may come in another order
		m.suspects[key] = s
		return
	} else if len(m.suspects) >= maxSuspects {
		m.dropped++
		return
	}
	m.suspects[key] = suspect{since: time.Now(), last: at, ends: ends}
	m.lookSoon()
}

// Watched sets the types of filesystems, by their names in /proc/filesystems, whose errors Notify gets
// from now on. It does not block; concurrent use is safe.
func (m *mountSource) Watched(types []string) {
	watched := make(map[string]bool, len(types))
	for _, t := range types {
		watched[t] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched = watched
}

// watchedTypes returns the types that were set last. The map is not changed.
func (m *mountSource) watchedTypes() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watched
}

// reportLasting requests that all filesystems that refuse writes are reported again, to emit.
func (m *mountSource) reportLasting(emit Emit) {
	m.asked.add(emit)
	m.lookSoon()
}

func (m *mountSource) lookSoon() {
	select {
	case m.wake <- struct{}{}:
	default: // a check is due anyway
	}
}

// Run first reports the filesystems that refuse writes already. It returns nil when ctx is done.
func (m *mountSource) Run(ctx context.Context, emit Emit) error {
	g, ctx := errgroup.WithContext(ctx)
	changed := make(chan struct{}, 1)
	g.Go(func() error { return m.watch(ctx, changed) })
	g.Go(func() error {
		again := time.NewTimer(0)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			case <-time.After(hostfs.UntilBeat(mountEvery)):
			case <-m.wake:
			case <-again.C:
			}
			if wait := m.read(emit); wait > 0 {
				again.Reset(wait)
			}
		}
	})
	return g.Wait()
}

// read checks the current table, if it can be read.
func (m *mountSource) read(emit Emit) (again time.Duration) {
	table, err := m.env.fs.MountTable()
	if err != nil {
		m.reportSource(err, emit)
		return 0
	}
	again = m.look(table, time.Now(), emit)
	m.reportSource(m.unseen(), emit)
	m.repeat(emit)
	return again
}

// reportSource reports each change of whether all filesystems that refuse writes are detected. When
// they are again, those that refused writes before are reported again if they still do.
func (m *mountSource) reportSource(err error, emit Emit) {
	why := errorText(err)
	if m.known && m.down == why {
		return
	}
	m.known, m.down = true, why
	if err != nil {
		m.env.log.Error("can't detect read-only filesystems", "error", err)
		for _, r := range m.reported {
			r.again = true
		}
	}
	emit(sourceEvent(event.MountReadOnly.Stem(), err))
}

// watch signals changes that the kernel notifies of. When watching fails, it retries.
func (m *mountSource) watch(ctx context.Context, changed chan<- struct{}) error {
	for ctx.Err() == nil {
		err := hostfs.NewMountWatcher(m.env.fs).Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default: // a check is due anyway
			}
		})
		if err != nil && ctx.Err() == nil {
			m.env.log.Warn("changes to mounts are detected late", "error", err, "look_every", mountEvery)
		}
		select {
		case <-ctx.Done():
		case <-time.After(mountEvery):
		}
	}
	return nil
}

// look compares the table with the last one. It returns how soon it must be called again because of
// suspects or held-back changes, or 0 if there are none.
func (m *mountSource) look(table *hostfs.MountTable, now time.Time, emit Emit) (again time.Duration) {
	m.waits = 0
	m.env.devices.SetMounts(table)
	mounts := table.Mounts()
	ready, held, again := m.holdBack(diff(m.last, mounts), now)
	for _, c := range ready {
		if m.apply(c, emit) {
			continue
		}
		if since, ok := m.held[c.key]; !ok || !since.IsZero() {
			m.drop()
		}
		held[c.key] = time.Time{} // the next look tries again
	}
	first := m.last == nil
	m.last, m.held, m.looked = keep(m.last, mounts, held), held, now
	m.filesystems, m.keys = byFilesystem(m.last)
	m.renewed(now, emit)
	suspects, soon := m.takeSuspects(now)
	m.judge(suspects, now, emit)
	m.ask(first, now, emit)
	m.reportDropped(emit)
	if m.waits >= maxWaits {
		soon = suspectSoon // some may not have been asked
	}
	return sooner(again, soon)
}

func (m *mountSource) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropped++
}

func (m *mountSource) reportDropped(emit Emit) {
	m.mu.Lock()
	n := m.dropped
	m.dropped = 0
	m.mu.Unlock()
	if n > 0 {
		emit(lostEvent(event.MountReadOnly.Stem(), "too-many", n))
	}
}

// renewed detects filesystems with an invisible fault that were unmounted and mounted again, as for
// a repair, between two checks: both tables are the same then.
func (m *mountSource) renewed(now time.Time, emit Emit) {
	for key, r := range m.reported {
		remounted, ago := false, time.Duration(0)
		switch {
		case r.data.Reason == reasonErrorPolicy:
			at, err := m.mountedAt(key, r.device.Name)
			switch {
			case err != nil:
			case r.mounted.IsZero():
				r.mounted = at
			case !at.Equal(r.mounted):
				remounted, ago = true, max(now.Sub(at), 0) // 0: the clock was ahead
			}
		case r.data.Reason == reasonShutdown && r.data.FSType == "xfs":
			// Only a new mount ends a shutdown. The shutdown is reported just before it is visible.
			if now.Sub(r.reported) >= suspectFor && m.xfsRunsOn(key) {
				remounted = true
			}
		}
		if remounted {
			m.acquit(key, hostfs.BootTime()-ago)
			m.apply(change{key: key, reason: reasonRemounted}, emit)
		}
	}
}

// xfsRunsOn reports whether an XFS answers, so that it has not shut down.
func (m *mountSource) xfsRunsOn(key fsKey) bool {
	fs := m.filesystems[key]
	if fs == nil {
		return false
	}
	paths := visiblePaths(fs, hiddenIn(m.last))
	reason, err := askAbout(m, key, func() (string, error) { return m.xfsRefusal(key, paths) })
	return err == nil && reason == ""
}

// repeat reports the filesystems that must be reported again, once the source is up. It answers
// requests for lasting faults with all of them.
func (m *mountSource) repeat(emit Emit) {
	asked := m.asked.take()
	for _, r := range m.reported {
		if r.again && m.down == "" {
			r.again = false
			m.report(event.MountReadOnly, r, r.data.Reason, emit)
		}
		for _, emit := range asked {
			m.report(event.MountReadOnly, r, r.data.Reason, emit)
		}
	}
}

// apply reports a change. It returns false if there is no room for another filesystem that refuses
// writes.
func (m *mountSource) apply(c change, emit Emit) bool {
	if c.reason == reasonUnmounted {
		m.acquit(c.key, hostfs.BootTime())
	}
	known := m.reported[c.key]
	switch {
	case c.faulty && known == nil && len(m.reported) >= maxRefusing:
		return false
	case c.faulty && known == nil:
		known = &refusing{reported: time.Now(), device: m.env.mountedDevice(&c.mount), data: event.MountData{
			FSType: display.Safe(c.mount.FSType, 64),
			Path:   display.Safe(c.mount.Path, 1024),
			Reason: c.reason,
		}}
		if at := known.device.Mounts; len(at) > 0 {
			known.data.Path = at[0].Path // the shortest path
		}
		if c.reason == reasonErrorPolicy {
			known.mounted, _ = m.mountedAt(c.key, known.device.Name) // on failure renewed tries again
		}
		m.reported[c.key] = known
		m.report(event.MountReadOnly, known, c.reason, emit)
	case !c.faulty && known != nil:
		delete(m.reported, c.key)
		m.report(event.MountWritable, known, c.reason, emit)
	}
	return true
}

// acquit drops the errors, up to a time since boot, of a filesystem that is no longer mounted. The
// filesystem that is mounted there next, for example after a repair, has had no errors.
func (m *mountSource) acquit(key fsKey, before time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.suspects[key].last <= before {
		delete(m.suspects, key)
	}
	now := hostfs.BootTime()
	maps.DeleteFunc(m.gone, func(_ fsKey, at time.Duration) bool { return now-at > lateFor })
	m.gone[key] = before
}

func (m *mountSource) report(kind event.Kind, r *refusing, reason string, emit Emit) {
	device, data := r.device, r.data
	data.Reason = reason
	emit(hostfs.Stamped(event.Event{Kind: kind, Source: "mountinfo", Device: &device, Mount: &data}))
}

// mountedDevice returns the device of a mount. A btrfs or bcachefs whose device is unknown gets the name
// that it was mounted from.
func (env *environment) mountedDevice(mount *hostfs.Mount) event.Device {
	if mount.DeviceMajor != 0 {
		return env.devices.Device(mount.DeviceMajor, mount.DeviceMinor)
	}
	return event.Device{
		Minor:  mount.Minor,
		Name:   display.Safe(filepath.Base(mount.Source), 64),
		Mounts: []event.Mount{{Path: display.Safe(mount.Path, 1024), FSType: display.Safe(mount.FSType, 64)}},
	}
}

// takeSuspects returns the current suspects, and removes those that had enough time to show a
// fault. If such a filesystem has more errors, it becomes a suspect again; so a flood of errors
// costs three checks a second.
func (m *mountSource) takeSuspects(now time.Time) (all map[fsKey]suspect, again time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = maps.Clone(m.suspects)
	maps.DeleteFunc(m.suspects, func(_ fsKey, s suspect) bool { return s.late(now) })
	for _, s := range m.suspects {
		age, until := now.Sub(s.since), suspectFor
		if age < suspectSoon {
			until = suspectSoon
		}
		again = sooner(again, until-age)
	}
	return all, again
}

// judge decides whether filesystems refuse writes that had an error but don't show a fault.
func (m *mountSource) judge(suspects map[fsKey]suspect, now time.Time, emit Emit) {
	for key, s := range suspects {
		fs := m.filesystems[key]
		if fs == nil || m.reported[key] != nil {
			continue
		}
		var reason string
		switch {
		case fs[0].FSType == "xfs":
			// A shutdown is the only error reported for XFS, and mountinfo does not show it. The
			// record may be from an earlier mount, or arrive before the shutdown is visible.
			if m.xfsRunsOn(key) {
				continue
			}
			reason = reasonShutdown
		case s.late(now) && fs.visible() == "" && fs.writable() != nil && (s.ends || m.remountsReadOnly(fs[0])):
			// ext4 from d3476f3dad4a (v6.12, backports to 6.1) until v6.15 does not show it.
			if m.mountedSince(key, fs[0], s.last) {
				continue // the error belongs to the previous mount
			}
			reason = reasonErrorPolicy
		default:
			continue
		}
		if !m.apply(change{key: key, mount: *fs[0], faulty: true, reason: reason}, emit) && s.late(now) {
			m.drop() // until then the next check tries again
		}
	}
}

// mountedSince reports whether a filesystem was mounted after a time since boot, in a later second. It
// returns false for a mount time in the future, made while the clock was ahead.
func (m *mountSource) mountedSince(key fsKey, mount *hostfs.Mount, at time.Duration) bool {
	if !hostfs.IsExt4(mount.FSType) {
		return false
	}
	mounted, err := m.mountedAt(key, m.env.devices.Device(key.major, key.minor).Name)
	now := time.Now()
	// The event's own wall clock time may be of before the clock was set.
	then := now.Add(at - hostfs.BootTime())
	return err == nil && mounted.Unix() > then.Unix() && !mounted.After(now)
}

// mountedAt returns when the ext4 on a device, given by its kernel name, was last mounted for
// writing.
func (m *mountSource) mountedAt(key fsKey, device string) (time.Time, error) {
	return askAbout(m, key, func() (time.Time, error) { return m.env.fs.Ext4MountedAt(device) })
}

// remountsReadOnly reports whether errors end writing on this filesystem.
func (m *mountSource) remountsReadOnly(mount *hostfs.Mount) bool {
	name := m.env.devices.Device(mount.Major, mount.Minor).Name
	ends, err := m.env.fs.RemountsReadOnly(mount, name)
	if err != nil {
		m.env.log.Debug("can't read a filesystem's error policy", "device", name, "error", err)
	}
	return ends
}
