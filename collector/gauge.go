package collector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// gaugeSource reads how much of the node's memory, open files, PIDs, disk space and inodes is in
// use, and how far the clock may be off. It emits each gauge at each interval. The engine keeps
// the readings that a rule needs; the others are not journaled.
//
// Each gauge is a separate source, such as "gauge/inodes": if one can't be read, the others still
// are.
type gaugeSource struct {
	env      *environment
	adjtimex func(*unix.Timex) (int, error) // unix.Adjtimex, or a test's
	statfs   statfsFunc
	own      func() ([]hostfs.Mount, error) // hostfs.OwnMounts, or a test's

	// Used by Run's goroutine only.
	reported    map[string]string // last state from reportSource, by gauge: why it can't be read, or ""
	filesystems map[fsKey]*gaugedFilesystem
}

// gaugeEvery is how often gauges are read: twice a minute, so that a rule's "for" of some minutes
// covers several readings. Reading all of them takes 0.2 ms, plus two readings per filesystem.
const gaugeEvery = 30 * time.Second

func newGaugeSource(env *environment) *gaugeSource {
	return &gaugeSource{
		env: env, adjtimex: unix.Adjtimex, own: hostfs.OwnMounts,
		statfs: func(path string, key fsKey) (unix.Statfs_t, error) {
			return hostfs.StatfsAt(path, key.major, key.minor)
		},
		reported: map[string]string{}, filesystems: map[fsKey]*gaugedFilesystem{},
	}
}

// Run reads gauges until ctx is done, then returns nil.
func (g *gaugeSource) Run(ctx context.Context, emit Emit) error {
	return onBeats(ctx, gaugeEvery, func() { g.look(emit) })
}

func (g *gaugeSource) look(emit Emit) {
	g.single(event.GaugeMemory, g.memory, emit)
	g.single(event.GaugeFiles, g.files, emit)
	g.single(event.GaugePIDs, g.pids, emit)
	var clock unix.Timex // modes 0 only reads, which needs no capability
	_, err := g.adjtimex(&clock)
	g.single(event.GaugeClockError, func() (value, limit uint64, _ error) {
		return uint64(max(clock.Maxerror, 0)), clockErrorLimit, err
	}, emit)
	g.single(event.GaugeClockOffset, func() (value, limit uint64, _ error) { return clockOffset(&clock), 0, err }, emit)
	g.lookAtFilesystems(emit)
}

// single reads and emits a gauge that the node has once.
func (g *gaugeSource) single(name string, read func() (value, limit uint64, err error), emit Emit) {
	value, limit, err := read()
	g.reportSource(name, err, emit)
	if err == nil {
		g.emit(event.GaugeData{Name: name, Value: value, Limit: limit}, nil, emit)
	}
}

func (g *gaugeSource) emit(d event.GaugeData, device *event.Device, emit Emit) {
	emit(hostfs.Stamped(event.Event{Kind: event.Gauge, Source: "gauge", Device: device, Gauge: &d}))
}

// reportSource reports whether a gauge can be read, when that changes.
func (g *gaugeSource) reportSource(name string, err error, emit Emit) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if was, ok := g.reported[name]; ok && was == reason {
		return
	}
	g.reported[name] = reason
	if err != nil {
		g.env.log.Warn("can't read gauge", "gauge", name, "error", err)
	}
	emit(sourceEvent(event.NamedStem(event.GaugeStem, name), err))
}

func (g *gaugeSource) memory() (used, total uint64, err error) {
	info, err := g.env.fs.MemInfo()
	if err != nil {
		return 0, 0, err
	}
	total, hasTotal := info["MemTotal"]
	available, hasAvailable := info["MemAvailable"]
	if !hasTotal || !hasAvailable || available > total {
		return 0, 0, errors.New("meminfo: MemTotal or MemAvailable is missing")
	}
	return total - available, total, nil
}

// files reads fs.file-nr: "1984   0       9223372036854775807". The second number is 0 since 2.6.
func (g *gaugeSource) files() (open, limit uint64, err error) {
	text, err := g.env.fs.Sysctl("fs.file-nr")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return 0, 0, fmt.Errorf("sysctl fs.file-nr: %q", text)
	}
	open, err = strconv.ParseUint(fields[0], 10, 64)
	if err == nil {
		limit, err = strconv.ParseUint(fields[2], 10, 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("sysctl fs.file-nr: %w", err)
	}
	return open, limit, nil
}

func (g *gaugeSource) pids() (threads, limit uint64, err error) {
	load, err := g.env.fs.LoadAverage()
	if err != nil {
		return 0, 0, err
	}
	for _, name := range []string{"kernel.pid_max", "kernel.threads-max"} {
		text, err := g.env.fs.Sysctl(name)
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("sysctl %s: %w", name, err)
		}
		if limit == 0 || n < limit {
			limit = n
		}
	}
	return load.Tasks, limit, nil
}

// clockErrorLimit is NTP_PHASE_LIMIT, in µs. The maximum error grows by 500 ppm while nothing
// corrects the clock; at this limit the kernel sets STA_UNSYNC (second_overflow).
const clockErrorLimit = 16_000_000

// clockOffset returns the offset still to be slewed, in µs.
func clockOffset(t *unix.Timex) uint64 {
	offset := t.Offset
	if t.Status&unix.STA_NANO != 0 {
		offset /= 1000
	}
	return uint64(max(offset, -offset))
}
