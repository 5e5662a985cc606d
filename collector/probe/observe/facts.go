package observe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// worthReporting is how much throttling, in percent, is mentioned in the cause: a container that
// loses less than a quarter of its time may answer slowly, but still answers.
const worthReporting = 25

// facts is the result of an inspection. The zero value means that nothing is known.
type facts struct {
	Known       bool
	Throttled   uint32        // percent of ThrottledIn in which a limit throttled it
	ThrottledIn time.Duration // 0: not sampled, or no limit
	Quota       time.Duration // of CPU time in Period; 0: unknown
	Period      time.Duration
	PodLimit    bool    // the limit is its pod's, not its own
	Pressure    float64 // percent of the last 10 s in which a task waited for a CPU; < 0: unknown
	Frozen      bool
	Ending      string // what shows that the container is being killed, or has ended; empty: nothing does
	Processes   int
	Stopped     []string // processes stopped by a signal or a tracer
	Blocked     []string // processes whose main thread is in uninterruptible sleep
	InSleep     int      // threads in uninterruptible sleep
	Threads     int
	OOM         string // process that the OOM killer killed recently; empty: none
	OOMAgo      time.Duration
}

// cause returns the facts that explain a failure, such as "container CPU-throttled 82 % of the
// last 10 s", to append to the verdict; "" if none do. who is the subject of the facts:
// "container" or "kubelet".
func (f *facts) cause(who string) string {
	var parts []string
	switch {
	case f.Frozen:
		parts = append(parts, who+" is frozen")
	case len(f.Stopped) > 0:
		parts = append(parts, "stopped: "+strings.Join(f.Stopped, ", "))
	}
	if f.Throttled >= worthReporting {
		parts = append(parts, who+" "+f.throttled())
	}
	if len(f.Blocked) > 0 {
		parts = append(parts, "blocked (state D): "+strings.Join(f.Blocked, ", "))
	}
	if f.OOM != "" {
		parts = append(parts, fmt.Sprintf("OOM kill of %s %s before", f.OOM, f.OOMAgo.Round(100*time.Millisecond)))
	}
	return strings.Join(parts, "; ")
}

func (f *facts) throttled() string {
	return "CPU-throttled " + strconv.Itoa(int(f.Throttled)) + " % of the last " + strconv.Itoa(int(f.ThrottledIn.Round(time.Second)/time.Second)) + " s"
}

// evidence returns the facts that suggest who as the cause, and those that exclude it.
func (f *facts) evidence(who string) (evidence, excluded []string) {
	if !f.Known {
		return nil, nil
	}
	limit := ""
	if f.Quota > 0 && f.Period > 0 {
		of := ""
		if f.PodLimit {
			of = " of its pod"
		}
		limit = " (limit " + strconv.FormatInt(int64(f.Quota*1000/f.Period), 10) + "m" + of + ")"
	}
	switch {
	case f.Throttled > 0:
		evidence = append(evidence, who+" "+f.throttled()+limit)
	case f.ThrottledIn > 0:
		excluded = append(excluded, fmt.Sprintf("%s not CPU-throttled in the last %d s%s", who, f.ThrottledIn.Round(time.Second)/time.Second, limit))
	}
	if f.Pressure >= worthReporting {
		evidence = append(evidence, fmt.Sprintf("%s waited for a CPU in %.0f %% of the last 10 s", who, f.Pressure))
	}
	if f.Frozen {
		evidence = append(evidence, who+" is frozen")
	}
	if f.Ending != "" {
		evidence = append(evidence, who+" is ending: "+f.Ending)
	}
	if len(f.Stopped) > 0 {
		evidence = append(evidence, who+" has stopped processes: "+strings.Join(f.Stopped, ", "))
	}
	if f.InSleep > 0 {
		evidence = append(evidence, fmt.Sprintf("%s has %d of %d threads in uninterruptible sleep", who, f.InSleep, f.Threads))
	}
	if f.OOM != "" {
		evidence = append(evidence, fmt.Sprintf("OOM killer killed %s of the %s %s before", f.OOM, who, f.OOMAgo.Round(100*time.Millisecond)))
	}
	if f.Processes > 0 && !f.Frozen && len(f.Stopped) == 0 && f.InSleep == 0 {
		excluded = append(excluded, fmt.Sprintf("no process of the %s is stopped or blocked (%d)", who, f.Processes))
	}
	return evidence, excluded
}

// fill adds the facts to an outcome: figures, evidence, and an addition to the cause.
func (f *facts) fill(d *event.ProbeOutcome, who string) {
	if !f.Known {
		return
	}
	d.Throttled, d.ThrottledIn = f.Throttled, event.Duration(f.ThrottledIn)
	evidence, excluded := f.evidence(who)
	d.Evidence = append(d.Evidence, evidence...)
	d.Excluded = append(d.Excluded, excluded...)
	if c := f.cause(who); c != "" {
		d.Cause += "; " + c
	}
}
