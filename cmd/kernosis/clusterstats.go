package main

import (
	"maps"

	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// stats is what the metrics show of the API server.
func (r *clusterReporter) stats() metrics.ClusterStats {
	r.mu.Lock()
	s := metrics.ClusterStats{LastAcked: maps.Clone(r.acked)}
	r.mu.Unlock()
	if r.conditions != nil {
		k := r.conditions.Stats()
		for _, o := range conditions.Outcomes() {
			s.Writes = append(s.Writes, metrics.APIWrites{Object: objectCondition, Outcome: string(o), Count: k.Writes[o]})
		}
		s.Conditions = &metrics.ConditionStats{
			Bytes: k.Bytes, Flips: k.Flips, Contested: k.Contested, Removed: k.Removed, Refused: k.Refused, Trimmed: k.Trimmed,
			Pending: k.Pending, Yielded: len(k.Yielded),
		}
	}
	if r.lease != nil {
		k := r.lease.Stats()
		for _, o := range lease.Outcomes() {
			s.Writes = append(s.Writes, metrics.APIWrites{Object: objectLease, Outcome: string(o), Count: k.Renewals[o]})
		}
		s.LastAcked[objectLease] = k.LastRenewed
	}
	if r.events != nil {
		e := r.events.Stats()
		for outcome, n := range map[string]uint64{"created": e.Created, "patched": e.Patched, "recreated": e.Recreated, "failed": e.Failed} {
			s.Writes = append(s.Writes, metrics.APIWrites{Object: objectEvent, Outcome: outcome, Count: n})
		}
		s.Events = eventStats(&e)
	}
	if r.diagnoses != nil {
		r.diagnosisStats(&s)
	}
	return s
}

// diagnosisStats adds the requests for Diagnoses.
func (r *clusterReporter) diagnosisStats(s *metrics.ClusterStats) {
	st := r.diagnoses.Stats()
	s.Diagnoses = &metrics.DiagnosisRequests{Watches: st.Watches}
	writes := map[string]uint64{}
	for _, o := range kube.Outcomes() {
		writes[string(o)] = 0
	}
	for q, n := range st.Requests {
		s.Diagnoses.Requests = append(s.Diagnoses.Requests, metrics.APIRequests{
			Verb: q.Verb, Resource: q.Resource, Outcome: string(q.Outcome), Count: n,
		})
		if q.Writes() {
			writes[string(q.Outcome)] += n
		}
	}
	for outcome, n := range writes {
		s.Writes = append(s.Writes, metrics.APIWrites{Object: objectDiagnosis, Outcome: outcome, Count: n})
	}
	s.LastAcked[objectDiagnosis] = st.LastAcked
}

func eventStats(e *events.Stats) *metrics.EventStats {
	out := &metrics.EventStats{
		Rules: make(map[string]metrics.EventRule, len(e.Rules)), LostEntries: e.LostEntries, Series: e.Series, Waiting: e.Waiting,
	}
	for name, r := range e.Rules {
		out.Rules[name] = metrics.EventRule{Happened: r.Happened, Dropped: r.Dropped, Untold: r.Untold}
	}
	return out
}
