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

// mountSource reports when a filesystem mounted for writing refuses writes, and
// when that is over. It also keeps the mount table that devices are named by.
//
// The kernel announces changes of mounts, but not an error that ends writing:
// ext4 sets a flag of its own since 6.12 and nobody is woken. So the table is
// read again when a filesystem error was seen, and now and then.
type mountSource struct {
	env *environment
	// asks are questions to filesystems whose shutdown was reported.
	asks bounded.Calls

	mu       sync.Mutex
	suspects map[fsKey]suspect
	gone     map[fsKey]time.Time // when what was unmounted was seen to be, for lateFor
	wake     chan struct{}       // holds one token while suspects or asked have new ones
	asked    requests

	// Of Run's goroutine.
	last        []hostfs.Mount      // what the next table is compared with
	held        map[fsKey]time.Time // since when what [mountSource.holdBack] keeps was seen
	reported    map[fsKey]*refusing
	unasked     map[fsKey]*bounded.Calls // filesystems of the first look that ask has no answer of
	known, down bool                     // what reportSource reported last
}

// refusing is a filesystem that was reported.
type refusing struct {
	reported time.Time
	again    bool      // the table could not be read meanwhile: it is reported again if it lasts
	mounted  time.Time // of an ext4 that shows nothing; zero: not known
	device   event.Device
	data     event.MountData
}

const (
	// mountEvery is how often the table is read without a cause: the longest
	// that a filesystem which turned read-only unseen goes unreported.
	mountEvery = 10 * time.Second
	// suspectSoon is when the table is read after an error was seen, besides at
	// once: the kernel reports the error just before it acts on it.
	suspectSoon = 20 * time.Millisecond
	// suspectFor is how long the kernel may take from the error to its visible
	// end. What does not show by then does not show at all.
	suspectFor = time.Second
	// lateFor is how late an error may be heard of.
	lateFor = time.Minute
	// maxSuspects bounds the devices waited for, and maxRefusing those that were
	// reported: more at once is one fault of what is below them.
	maxSuspects = 64
	maxRefusing = 256
)

func newMountSource(env *environment) *mountSource {
	return &mountSource{
		env: env, asks: bounded.Calls{Max: maxUnanswered}, suspects: map[fsKey]suspect{}, gone: map[fsKey]time.Time{}, wake: make(chan struct{}, 1),
		reported: map[fsKey]*refusing{}, unasked: map[fsKey]*bounded.Calls{},
	}
}

// suspect is a filesystem that has met an error.
type suspect struct {
	since time.Time // when the first one was reported
	last  time.Time // of the latest one, by the kernel's clock
	ends  bool      // one of them ends writing, whatever the policy is
}

// Notify reports that the filesystem on a device (the kernel's own dev_t) has met
// an error at a time, and whether it takes no writes from then on. It does not block,
// and is safe for concurrent use.
func (m *mountSource) Notify(dev uint32, at time.Time, ends bool) {
	major, minor := hostfs.SplitKernelDev(dev)
	m.mu.Lock()
	defer m.mu.Unlock()
	key := fsKey{major, minor}
	if at.Before(m.gone[key]) {
		return // of a mount that is no more
	}
	if s, ok := m.suspects[key]; ok {
		s.ends, s.last = s.ends || ends, at
		m.suspects[key] = s
		return
	} else if len(m.suspects) >= maxSuspects {
		return
	}
	m.suspects[key] = suspect{since: time.Now(), last: at, ends: ends}
	m.lookSoon()
}

// reportLasting has what refuses writes reported once more, to emit.
func (m *mountSource) reportLasting(emit Emit) {
	m.asked.add(emit)
	m.lookSoon()
}

func (m *mountSource) lookSoon() {
	select {
	case m.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Run first reports the filesystems that already refuse writes. It returns nil when ctx ends.
func (m *mountSource) Run(ctx context.Context, emit Emit) error {
	g, ctx := errgroup.WithContext(ctx)
	changed := make(chan struct{}, 1)
	g.Go(func() error { return m.watch(ctx, changed) })
	g.Go(func() error {
		ticks := time.NewTicker(hostfs.UntilBeat(mountEvery))
		defer ticks.Stop()
		again := time.NewTimer(0)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			case <-ticks.C:
				ticks.Reset(hostfs.UntilBeat(mountEvery))
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

// read looks at the table as it is now, where it can be read.
func (m *mountSource) read(emit Emit) (again time.Duration) {
	table, err := m.env.fs.MountTable()
	m.reportSource(err, emit)
	if err != nil {
		return 0
	}
	return m.look(table, time.Now(), emit)
}

// reportSource reports once whether the mount table can be read. What refused writes
// before it could not is reported again after, if it lasts.
func (m *mountSource) reportSource(err error, emit Emit) {
	if m.known && m.down == (err != nil) {
		return
	}
	m.known, m.down = true, err != nil
	if err != nil {
		m.env.log.Error("can't detect read-only filesystems", "error", err)
		for _, r := range m.reported {
			r.again = true
		}
	}
	emit(sourceEvent(event.MountReadOnly.Stem(), err))
}

// watch says when the kernel has announced a change. When watching fails, it tries again.
func (m *mountSource) watch(ctx context.Context, changed chan<- struct{}) error {
	for ctx.Err() == nil {
		err := hostfs.NewMountWatcher(m.env.fs).Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default: // a look is due anyway
			}
		})
		if err != nil && ctx.Err() == nil {
			m.env.log.Warn("changes to mounts are noticed late", "error", err, "look_every", mountEvery)
		}
		select {
		case <-ctx.Done():
		case <-time.After(mountEvery):
		}
	}
	return nil
}

// look compares the table with the last one. It returns how soon it wants to be
// called again because of suspects, or of what may be one; 0: there are none.
func (m *mountSource) look(table *hostfs.MountTable, now time.Time, emit Emit) (again time.Duration) {
	m.env.devices.SetMounts(table)
	mounts := table.Mounts()
	ready, held, again := m.holdBack(diff(m.last, mounts), now)
	for _, c := range ready {
		m.apply(c, emit)
	}
	first := m.last == nil
	m.last, m.held = keep(m.last, mounts, held), held
	if first {
		m.atStart()
	}
	m.ask(emit)
	m.renewed(now, emit)
	ripe, soon := m.takeSuspects(now)
	if len(ripe) > 0 {
		m.question(ripe, emit)
	}
	m.repeat(emit)
	for _, emit := range m.asked.take() {
		for _, r := range m.reported {
			m.report(event.MountReadOnly, r, r.data.Reason, emit)
		}
	}
	return sooner(again, soon)
}

// renewed finds what shows nothing, and was unmounted and mounted again, as for a repair,
// between two looks: the tables are the same then.
func (m *mountSource) renewed(now time.Time, emit Emit) {
	for key, r := range m.reported {
		var mounted time.Time // at the latest
		switch {
		case r.data.Reason == reasonErrorPolicy:
			at, err := m.env.fs.Ext4MountedAt(r.device.Name)
			switch {
			case err != nil:
			case r.mounted.IsZero():
				r.mounted = at
			case !at.Equal(r.mounted):
				mounted = at
				if at.After(now) { // the clock was ahead
					mounted = now
				}
			}
		case r.data.Reason == reasonShutdown && r.data.FSType == "xfs":
			// Only a mount of its own ends a shutdown, which is reported just before it shows.
			if now.Sub(r.reported) >= suspectFor && m.xfsRunsOn(key) {
				mounted = now
			}
		}
		if !mounted.IsZero() {
			m.acquit(key, mounted)
			m.apply(change{key: key, reason: reasonRemounted}, emit)
		}
	}
}

// xfsRunsOn reports whether an XFS answers as one that has not shut down.
func (m *mountSource) xfsRunsOn(key fsKey) bool {
	filesystems, _ := byFilesystem(m.last)
	fs := filesystems[key]
	if fs == nil {
		return false
	}
	paths := visiblePaths(fs, hiddenIn(m.last))
	if len(paths) == 0 {
		return false // there is nobody to ask
	}
	reason, err := bounded.Do(&m.asks, askWithin, func() (string, error) { return m.xfsRefusal(key, paths) })
	return err == nil && reason == ""
}

// repeat reports what is to be reported again.
func (m *mountSource) repeat(emit Emit) {
	for _, r := range m.reported {
		if r.again {
			r.again = false
			m.report(event.MountReadOnly, r, r.data.Reason, emit)
		}
	}
}

func (m *mountSource) apply(c change, emit Emit) {
	if c.reason == reasonUnmounted {
		m.acquit(c.key, time.Now())
	}
	known := m.reported[c.key]
	switch {
	case c.faulty && known == nil && len(m.reported) < maxRefusing:
		known = &refusing{reported: time.Now(), device: m.env.mountedDevice(&c.mount), data: event.MountData{
			FSType: display.Safe(c.mount.FSType, 64),
			Path:   display.Safe(c.mount.Path, 1024),
			Reason: c.reason,
		}}
		if at := known.device.Mounts; len(at) > 0 {
			known.data.Path = at[0].Path // the shortest
		}
		if c.reason == reasonErrorPolicy {
			known.mounted, _ = m.env.fs.Ext4MountedAt(known.device.Name) // renewed tries again
		}
		m.reported[c.key] = known
		m.report(event.MountReadOnly, known, c.reason, emit)
	case !c.faulty && known != nil:
		delete(m.reported, c.key)
		m.report(event.MountWritable, known, c.reason, emit)
	}
}

// acquit forgets the errors, until a time, of a filesystem that is no longer mounted: what
// is mounted there next, as after a repair, has met none.
func (m *mountSource) acquit(key fsKey, before time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.suspects[key].last.After(before) {
		delete(m.suspects, key)
	}
	now := time.Now()
	maps.DeleteFunc(m.gone, func(_ fsKey, at time.Time) bool { return now.Sub(at) > lateFor })
	m.gone[key] = before
}

func (m *mountSource) report(kind event.Kind, r *refusing, reason string, emit Emit) {
	device, data := r.device, r.data
	data.Reason = reason
	emit(hostfs.Stamped(event.Event{Kind: kind, Source: "mountinfo", Device: &device, Mount: &data}))
}

// mountedDevice names the device; that of btrfs, whose number is its own, by what it
// was mounted from.
func (env *environment) mountedDevice(mount *hostfs.Mount) event.Device {
	if mount.Major != 0 {
		return env.devices.Device(mount.Major, mount.Minor)
	}
	return event.Device{
		Minor:  mount.Minor,
		Name:   display.Safe(filepath.Base(mount.Source), 64),
		Mounts: []event.Mount{{Path: display.Safe(mount.Path, 1024), FSType: display.Safe(mount.FSType, 64)}},
	}
}

// takeSuspects returns the suspects of now, and forgets those that had the time
// to show it. One whose errors go on is a suspect again;
// so a flood of errors costs three looks a second.
func (m *mountSource) takeSuspects(now time.Time) (ripe map[fsKey]suspicion, again time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ripe = make(map[fsKey]suspicion, len(m.suspects))
	for key, s := range m.suspects {
		age := now.Sub(s.since)
		ripe[key] = suspicion{late: age >= suspectFor, ends: s.ends, last: s.last}
		wait := suspectFor - age
		switch {
		case age >= suspectFor:
			delete(m.suspects, key)
			continue
		case age < suspectSoon:
			wait = suspectSoon - age
		}
		again = sooner(again, wait)
	}
	return ripe, again
}

// suspicion is what is known of a suspect at one look.
type suspicion struct {
	late bool // it had the time to show that it refuses writes
	ends bool // see [suspect]
	last time.Time
}

// question decides on filesystems that met an error but don't show that they
// refuse writes.
func (m *mountSource) question(ripe map[fsKey]suspicion, emit Emit) {
	filesystems, _ := byFilesystem(m.last)
	for key, s := range ripe {
		fs := filesystems[key]
		if fs == nil || m.reported[key] != nil {
			continue
		}
		var reason string
		switch {
		case fs.first().FSType == "xfs":
			// Its only error that is reported is a shutdown, which mountinfo does
			// not show. The record may be of a mount before this one, or come before
			// the shutdown shows.
			if m.xfsRunsOn(key) {
				continue
			}
			reason = reasonShutdown
		case s.late && fs.visible() == "" && !fs.first().MountReadOnly && (s.ends || m.remountsReadOnly(fs.first())):
			// ext4 since d3476f3dad4a (v6.12, and back-ports to 6.1) refuses
			// writes without showing it, until v6.15.
			if m.mountedSince(fs.first(), s.last) {
				continue // the error is that of the mount before
			}
			reason = reasonErrorPolicy
		default:
			continue
		}
		m.apply(change{key: key, mount: *fs.first(), faulty: true, reason: reason}, emit)
	}
}

// mountedSince reports whether a filesystem was mounted after a time, in a later second. One that
// was mounted while the clock was ahead may not have been.
func (m *mountSource) mountedSince(mount *hostfs.Mount, at time.Time) bool {
	if mount.FSType != "ext4" {
		return false
	}
	mounted, err := m.env.fs.Ext4MountedAt(m.env.devices.Device(mount.Major, mount.Minor).Name)
	return err == nil && mounted.Unix() > at.Unix() && !mounted.After(time.Now())
}

// remountsReadOnly reports whether an error ends writing.
func (m *mountSource) remountsReadOnly(mount *hostfs.Mount) bool {
	name := m.env.devices.Device(mount.Major, mount.Minor).Name
	ends, err := m.env.fs.RemountsReadOnly(mount, name)
	if err != nil {
		m.env.log.Debug("policy of a filesystem can't be read", "device", name, "error", err)
	}
	return ends
}
