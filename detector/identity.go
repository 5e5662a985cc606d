package detector

import (
	"encoding/binary"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
)

// maxRecent is how many identities of kernel records are kept. The biggest
// kernel ring holds about 10,000 records; a restart re-reads only what was not
// consumed, and a back-fill repeats the latest ones. They take 4,096 × 8 bytes twice.
const maxRecent = 4096

// recent remembers the identities of the latest kernel records, so that a
// record that is read twice (pinned ring, journal replay, back-fill) counts once.
type recent struct {
	set  map[uint64]struct{}
	ring []uint64
	next int
}

func newRecent() *recent { return &recent{set: make(map[uint64]struct{})} }

func (r *recent) has(id uint64) bool { _, ok := r.set[id]; return ok }

// add adds an identity. It returns false if it was there.
func (r *recent) add(id uint64) bool {
	before := len(r.set)
	r.set[id] = struct{}{}
	if len(r.set) == before {
		return false
	}
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, id)
		return true
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % maxRecent
	return true
}

// bytes returns the identities, oldest first, 8 bytes each.
func (r *recent) bytes() []byte {
	out := make([]byte, 0, 8*len(r.ring))
	for i := range r.ring {
		out = binary.LittleEndian.AppendUint64(out, r.ring[(r.next+i)%len(r.ring)])
	}
	return out
}

func (r *recent) load(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		r.add(binary.LittleEndian.Uint64(b))
	}
}

// hash is FNV-1a, 64 bits: stable across restarts, unlike hash/maphash. The
// inputs (times, numbers, device names) come from the kernel, not from an attacker.
type hash uint64

const newHash hash = 14695981039346656037

func (h hash) text(s string) hash {
	for i := range len(s) {
		h = (h ^ hash(s[i])) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211 // terminates the text: "ab","c" differs from "a","bc"
}

func (h hash) number(n uint64) hash {
	// One round a number instead of eight: the multiplication by an odd
	// constant with the high bits folded in mixes well enough for an identity.
	h = (h ^ hash(n)) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// identity returns a hash that identifies a kernel record since boot. It returns false for events
// that are not kernel records (without a boot time) and for the state of sources and gauges, which
// is never a duplicate. A kernel message is identified by its time stamp and text, regardless of
// the log; a numbered log line by its number; a daemon's report by its ID.
func identity(ev *event.Event) (uint64, bool) {
	id, ok := identityOfOne(ev)
	if ev.Times > 0 {
		id = uint64(hash(id).number(ev.Times)) // differs from the latest line, which may be read by itself
	}
	return id, ok
}

func identityOfOne(ev *event.Event) (uint64, bool) {
	if kernelMessage(ev) {
		return messageIdentity(ev.Log), true
	}
	if ev.Log != nil && ev.Log.Seq != 0 {
		return lineIdentity(ev.Log), true
	}
	if ev.Check != nil && ev.Check.ID != "" {
		return uint64(newHash.text(string(ev.Kind)).text(ev.Check.Check).text(ev.Check.ID)), true
	}
	if ev.BootTime == 0 || ev.Gauge != nil || ev.Lost != nil || ev.SourceUp != nil || ev.CanaryRun != nil {
		return 0, false
	}
	h := newHash.text(string(ev.Kind)).number(uint64(ev.BootTime)).number(uint64(ev.CPU))
	if ev.Task != nil {
		h = h.number(uint64(ev.Task.PID))
	}
	if ev.Device != nil {
		h = h.number(uint64(ev.Device.Major)<<32 | uint64(ev.Device.Minor))
	}
	if ev.Log != nil {
		// Lines can share a time: the kernel's time stamps are in microseconds.
		h = h.text(ev.Log.Log).text(ev.Log.Origin).text(ev.Log.Text)
	}
	if ev.SockFail != nil {
		h = h.text(ev.SockFail.Target)
	}
	if ev.Check != nil {
		h = h.text(ev.Check.Check)
	}
	if ev.Probe != nil {
		h = h.text(ev.Probe.Name).text(ev.Probe.Probe)
	}
	if ev.Conn != nil {
		h = h.number(uint64(ev.Conn.Src.Port())<<16 | uint64(ev.Conn.Dst.Port()))
	}
	return uint64(h), true
}

// kernelMessage reports whether the event is a kernel message, which several logs may contain.
func kernelMessage(ev *event.Event) bool {
	return ev.Log != nil && ev.Log.Stamp != 0 && ev.Log.FromKernel()
}

// inLog returns the identity of a kernel message for rules that read it from this log only.
func inLog(id uint64, log string) uint64 { return uint64(hash(id).text(log)) }

// messageIdentity returns the identity of a kernel message, which is the same in all logs.
func messageIdentity(d *event.LogData) uint64 {
	last := d.Text[strings.LastIndexByte(d.Text, '\n')+1:]
	return uint64(newHash.text(event.KernelLogs).number(uint64(d.Stamp)).text(last))
}

// lineIdentity returns the identity of a numbered line. It ignores the times, which differ at each
// reading, and the lines before it, because another reader may have read fewer of them. It
// includes the text, so that lines of a replaced log are not duplicates.
func lineIdentity(d *event.LogData) uint64 {
	last := d.Text[strings.LastIndexByte(d.Text, '\n')+1:]
	return uint64(newHash.text(string(event.Log)).text(d.Log).number(d.Seq).number(uint64(d.Part)).text(d.Origin).text(last))
}
