package event

import (
	"slices"
	"strings"
)

// Kind says what happened. Kinds are API: rules, journals and rule tests name them. The part before
// the first dot is the stem: the name of the BPF program, source, rule file and tests.
type Kind string

// Family describes the kinds of one stem, except their payloads.
type Family struct {
	Stem   string
	Faults string // what it is about, for people: "OOM kills"
	Kinds  []Kind
	// Begins and Ends are the kinds that start and end a level signal of one subject. For gauges
	// both are the same kind: a later value ends what an earlier one began. Empty: there are none.
	Begins, Ends Kind

	fields func() []*Field // the rule fields of its payload; nil: none
}

// Families returns all families. The payload and fields of each are in the file of its name.
func Families() []Family {
	return []Family{
		{Stem: "hungtask", Faults: "hung tasks", Kinds: []Kind{HungTask, HungTaskResumed},
			Begins: HungTask, Ends: HungTaskResumed, fields: hungTaskFields},
		{Stem: "oomkill", Faults: "OOM kills", Kinds: []Kind{OOMKill}, fields: oomKillFields},
		{Stem: "diskio", Faults: "disk I/O errors", Kinds: []Kind{DiskIO}, fields: diskIOFields},
		{Stem: "diskstall", Faults: "stalled disks", Kinds: []Kind{DiskStalled, DiskResumed},
			Begins: DiskStalled, Ends: DiskResumed, fields: diskStallFields},
		{Stem: "fserror", Faults: "filesystem errors", Kinds: []Kind{FSError}, fields: fsErrorFields},
		{Stem: "hwerror", Faults: "hardware errors", Kinds: []Kind{HWError}, fields: hwErrorFields},
		{Stem: "mount", Faults: "read-only filesystems", Kinds: []Kind{MountReadOnly, MountWritable},
			Begins: MountReadOnly, Ends: MountWritable, fields: mountFields},
		{Stem: "sockfail", Faults: "failed connections", Kinds: []Kind{SockFail, SockFailRecovered},
			Begins: SockFail, Ends: SockFailRecovered},
		{Stem: "probe", Faults: "failed probes", Kinds: []Kind{Probe, ProbeRecovered},
			Begins: Probe, Ends: ProbeRecovered, fields: probeFields},
		{Stem: "log", Faults: "lines of logs", Kinds: []Kind{Log}, fields: logFields},
		{Stem: "check", Faults: "results of checks", Kinds: []Kind{Check}, fields: checkFields},
		{Stem: "gauge", Faults: "gauges", Kinds: []Kind{Gauge},
			Begins: Gauge, Ends: Gauge, fields: gaugeFields},
		{Stem: "lost", Faults: "losses", Kinds: []Kind{Lost}, fields: sourceFields},
		{Stem: "source", Faults: "sources", Kinds: []Kind{Source}},
		{Stem: "canary", Faults: "canaries", Kinds: []Kind{Canary}},
	}
}

// FaultsOf returns what the events of a stem are about, for people: "OOM kills".
func FaultsOf(stem string) string {
	for _, f := range Families() {
		if f.Stem == stem {
			return f.Faults
		}
	}
	return "faults of " + stem
}

// Kinds returns every kind, sorted.
func Kinds() []Kind {
	var all []Kind
	for _, f := range Families() {
		all = append(all, f.Kinds...)
	}
	slices.Sort(all)
	return all
}

// Stem returns the stem of the kind: the part before the first dot.
func (k Kind) Stem() string {
	stem, _, _ := strings.Cut(string(k), ".")
	return stem
}

// EndedBy returns the kind that ends the level signal that k begins, or "" if k begins none.
func (k Kind) EndedBy() Kind {
	for _, f := range Families() {
		if f.Begins == k {
			return f.Ends
		}
	}
	return ""
}
