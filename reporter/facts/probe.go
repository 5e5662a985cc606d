package facts

import (
	"fmt"

	"github.com/kernosis/kernosis/collector/event"
)

func (f *Facts) probe(d *event.ProbeData) {
	f.Verdict, f.Cause = d.Verdict, d.Cause
	if d.Container != "" {
		f.Container = d.Container
	}
	if d.Failures > 0 {
		f.State = progress(d)
	}
	if d.ThrottledIn > 0 && d.Throttled >= throttledMuch {
		f.Because = fmt.Sprintf("container CPU-throttled %d %% of the last %s", d.Throttled, short(d.ThrottledIn))
	}
	f.Evidence = append(f.Evidence, d.Evidence...)
	if d.QueueMax > 0 && d.Cause == "" {
		f.add("accept queue %d/%d", d.QueueLen, d.QueueMax)
	}
	if d.Status != "" && d.Cause == "" {
		f.add("answered %s", d.Status)
	}
	if d.Endpoint != "" {
		how := fmt.Sprintf("%s %s", d.Handler, d.Endpoint)
		if d.Timeout > 0 {
			how += fmt.Sprintf(", time-out %s", short(d.Timeout))
		}
		if d.Period > 0 {
			how += fmt.Sprintf(", every %s", short(d.Period))
		}
		f.add("%s", how)
	}
	if d.Said != "" {
		f.add("said: %q", d.Said)
	}
	f.Excluded = append(f.Excluded, d.Excluded...)
}

// progress is "liveness 2 of 3 towards restart".
func progress(d *event.ProbeData) string {
	towards := ""
	switch d.Probe {
	case "liveness", "startup":
		towards = " towards restart"
	case "readiness":
		towards = " towards not ready"
	}
	switch {
	case d.Threshold == 0:
		return fmt.Sprintf("%s failed %d times in a row", d.Probe, d.Failures)
	case d.Failures < d.Threshold:
		return fmt.Sprintf("%s %d of %d%s", d.Probe, d.Failures, d.Threshold, towards)
	case d.Probe == "readiness":
		return fmt.Sprintf("%s failed %d times in a row, %d make it not ready", d.Probe, d.Failures, d.Threshold)
	}
	return fmt.Sprintf("%s %d of %d: kubelet restarts it", d.Probe, d.Failures, d.Threshold)
}

// Symptom reports whether the event is an effect that somebody noticed, a failed probe or
// connection, not a fault of the kernel.
func (f *Facts) Symptom() bool {
	stem := f.Kind.Stem()
	return stem == string(event.SockFail) || stem == string(event.Probe)
}

// Vague reports whether the verdict only says what did not come, so that what is in Because
// is the cause, and it the effect.
func (f *Facts) Vague() bool {
	switch f.Verdict {
	case event.VerdictSilent, event.VerdictSlow, event.VerdictExecSlow, event.VerdictOther:
		return f.Because != ""
	}
	return false
}
