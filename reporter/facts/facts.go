package facts

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/kernosis/kernosis/collector/event"
)

const (
	// maxList bounds each list, maxText a line of it in bytes.
	maxList = 8
	maxText = 240
	// maxFrames of a stack are named: the innermost say what is waited for.
	maxFrames = 4
	// throttledMuch is the share of time, in percent, from which on being kept from the
	// CPU is a reason for being late: below it a process still gets most of what it asks.
	throttledMuch = 25
)

// Facts are what is known behind one occurrence of a problem. Text is escaped and bounded.
type Facts struct {
	Kind      event.Kind `json:"kind,omitempty"`
	Verdict   string     `json:"verdict,omitempty"`   // the event's own word: accept-queue-full, memcg, EIO
	Cause     string     `json:"cause,omitempty"`     // the verdict in words with its figures; empty: the message says it
	Because   string     `json:"because,omitempty"`   // what in turn explains it
	State     string     `json:"state,omitempty"`     // how far it has come: "liveness 2 of 3 towards restart"
	Container string     `json:"container,omitempty"` // name, or 12 digits of the id; empty: none, or not known
	Evidence  []string   `json:"evidence,omitempty"`
	Excluded  []string   `json:"excluded,omitempty"`
	Doc       string     `json:"doc,omitempty"` // page: problems/OOMKilling
}

// Of returns the facts of an event; of nil none.
func Of(ev *event.Event) Facts {
	if ev == nil {
		return Facts{}
	}
	f := Facts{Kind: ev.Kind}
	if c := ev.Container; c != nil {
		f.Container = c.ID[:min(len(c.ID), 12)]
	}
	switch {
	case ev.Probe != nil:
		f.probe(ev.Probe)
	case ev.SockFail != nil:
		f.sockFail(ev.SockFail)
	case ev.OOMKill != nil:
		f.oomKill(ev)
	case ev.HungTask != nil:
		f.hungTask(ev)
	case ev.DiskIO != nil:
		f.diskIO(ev)
	case ev.DiskStall != nil:
		f.add("%d in flight, none completed for at least %s", ev.DiskStall.InFlight, short(ev.DiskStall.StalledFor))
		f.mounts(ev.Device)
	case ev.FSError != nil:
		f.Verdict = ev.FSError.FSType
		f.add("%s line %d found it", ev.FSError.Function, ev.FSError.Line)
		f.mounts(ev.Device)
	case ev.Mount != nil:
		f.Verdict = ev.Mount.Reason
		f.add("%s at %s, told by %s", ev.Mount.FSType, ev.Mount.Path, ev.Mount.Reason)
	case ev.Log != nil:
		text := ev.Log.Text[strings.LastIndexByte(ev.Log.Text, '\n')+1:]
		f.add("%s: %s", ev.Log.Log, text)
	case ev.Check != nil:
		f.Verdict = ev.Check.Status
		f.add("%s: %s", ev.Check.Check, ev.Check.Message)
	case ev.Gauge != nil:
		f.add("%s: %d of %d", ev.Gauge.Name, ev.Gauge.Value, ev.Gauge.Limit)
		f.mounts(ev.Device)
	case ev.Lost != nil:
		f.Verdict = ev.Lost.Reason
		f.add("%d records of %s", ev.Lost.Count, ev.Lost.Stem)
	}
	f.bound()
	return f
}

func (f *Facts) add(format string, args ...any) {
	f.Evidence = append(f.Evidence, fmt.Sprintf(format, args...))
}

func (f *Facts) not(format string, args ...any) {
	f.Excluded = append(f.Excluded, fmt.Sprintf(format, args...))
}

// bound makes what others have said safe to show, and short.
func (f *Facts) bound() {
	for _, s := range []*string{&f.Verdict, &f.Cause, &f.Because, &f.State, &f.Container, &f.Doc} {
		*s = event.SafeText(*s, maxText)
	}
	f.Kind = event.Kind(event.SafeText(string(f.Kind), 64))
	for _, list := range []*[]string{&f.Evidence, &f.Excluded} {
		*list = (*list)[:min(len(*list), maxList)]
		for i, s := range *list {
			(*list)[i] = event.SafeText(s, maxText)
		}
	}
}

func (f *Facts) oomKill(ev *event.Event) {
	d := ev.OOMKill
	f.Verdict = d.Scope
	switch d.Scope {
	case "memcg":
		where := "its cgroup"
		if g := d.LimitCgroup; g != nil && (ev.Cgroup == nil || g.Path != ev.Cgroup.Path) {
			where = g.Path
		}
		if d.Limit > 0 {
			f.add("%s used of the limit of %s of %s", size(d.Usage), size(d.Limit), where)
		}
		f.not("node out of memory (a cgroup's limit was hit)")
	case "global":
		f.not("a limit of its own (the whole node had no memory left)")
	}
	about := ""
	if d.Approximate {
		about = "about "
	}
	killed := "killed"
	if ev.Task != nil {
		killed = ev.Task.String() + " killed"
	}
	f.add("%s: anonymous %s%s, file %s, shared %s, swap %s, page tables %s", killed, about, size(d.AnonRSS), size(d.FileRSS), size(d.ShmemRSS), size(d.Swap), size(d.PageTables))
	if d.Trigger != nil {
		f.add("asked for by %s", d.Trigger)
	}
	f.add("oom_score_adj %d", d.OOMScoreAdj)
}

func (f *Facts) hungTask(ev *event.Event) {
	d := ev.HungTask
	f.Verdict = d.Wait
	waits := "waits for " + d.Wait
	switch {
	case d.Wait == "io":
		waits = "waits for I/O"
	case d.Lock != "":
		waits = "waits for a " + d.Lock
	case d.Wait == "other" || d.Wait == "":
		waits = "what it waits for is not recorded"
	}
	f.add("not run for at least %s, %s", short(d.BlockedFor), waits)
	if h := d.Holder; h != nil {
		possibly := ""
		if d.HolderHint {
			possibly = "possibly "
		}
		f.add("lock held %sby %s", possibly, h)
	}
	if len(d.Stack) > 0 {
		f.add("stack: %s", strings.Join(d.Stack[:min(len(d.Stack), maxFrames)], " ← "))
	}
}

func (f *Facts) diskIO(ev *event.Event) {
	d := ev.DiskIO
	f.Verdict = d.Error
	f.add("%s of %s at sector %d: %s", d.Op, size(uint64(d.Bytes)), d.Sector, strings.TrimSuffix(d.Error+" "+d.Status, " "))
	if d.Lower != "" {
		f.add("the error is that of %s below it", d.Lower)
	}
	if ev.Cgroup != nil && ev.Cgroup.Path != "" {
		f.add("asked for by %s", ev.Cgroup.Path)
	}
	f.mounts(ev.Device)
}

// mounts names where a device is mounted: that is what people know it by.
func (f *Facts) mounts(d *event.Device) {
	if d == nil {
		return
	}
	for i, m := range d.Mounts {
		if i == 2 {
			f.add("%s: %d more mounts", d.Name, len(d.Mounts)-i)
			return
		}
		f.add("%s is mounted at %s (%s)", d.Name, m.Path, m.FSType)
	}
}

func (f *Facts) sockFail(d *event.SockFailData) {
	f.Verdict = d.Verdict
	f.Evidence = append(f.Evidence, d.Evidence...)
	if d.QueueMax > 0 && !strings.Contains(strings.Join(d.Evidence, " "), "queue") {
		f.add("accept queue %d/%d", d.QueueLen, d.QueueMax)
	}
	if d.Errno != "" {
		f.add("%s after %s", d.Errno, short(d.Duration))
	}
	f.Excluded = append(f.Excluded, d.Excluded...)
}

// size is "32 MiB".
func size(n uint64) string { return humanize.IBytes(n) }

// short is a duration without needless digits.
func short(d event.Duration) string {
	t := time.Duration(d)
	switch {
	case t >= time.Minute:
		return t.Round(time.Second).String()
	case t >= time.Second:
		return t.Round(100 * time.Millisecond).String()
	case t >= time.Millisecond:
		return t.Round(100 * time.Microsecond).String()
	}
	return t.String()
}
