package ingest

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/ingest/client"
)

// Intake accepts reports. Create one with New; its methods are safe for concurrent use.
type Intake struct {
	owner   func(string) string
	earlier func(string) (time.Duration, bool)
	log     *slog.Logger
	counts  counts
	order   []*source // as configured

	mu      sync.Mutex // held while events are emitted, so that they keep their order
	sources map[string]*source
	types   map[string]*source // by condition type
	emit    func(*event.Event) // nil: not running
	serial  uint64             // of events without a key
	nonce   string             // makes serials of different runs differ
	wake    chan struct{}      // receives when the next expiry may have changed
	fs      hostfs.FS
}

// source is the state of one daemon.
type source struct {
	Source
	limits     limits
	conditions map[string]*condition
	reasons    map[string]bool
	heard      time.Time // time of the last report, or of the start
	until      time.Time // its event sources are up until then (monotonic clock); zero: they are down
}

// condition is the last known state of a daemon's condition.
type condition struct {
	said  client.Condition // as reported last; Status "": not since the start
	heard time.Time        // time of the last report, or of the start
	until time.Time        // when it expires (monotonic clock); zero: expired
	kept  time.Time        // likewise, until when it is as before the restart; zero: it is not
}

// New returns an intake that accepts nothing before Run, or all mistakes in the configuration.
func New(cfg Config) (*Intake, error) {
	if err := cfg.Check().Err(); err != nil {
		return nil, err
	}
	in := &Intake{
		fs: cfg.FS, owner: cfg.Owner, earlier: cfg.Earlier, log: cfg.Log, counts: newCounts(cfg.Sources), nonce: rand.Text(),
		sources: map[string]*source{}, types: map[string]*source{}, wake: make(chan struct{}, 1),
	}
	if in.log == nil {
		in.log = slog.New(slog.DiscardHandler)
	}
	for _, c := range cfg.Sources {
		s := &source{Source: c, limits: newLimits(), conditions: map[string]*condition{}, reasons: map[string]bool{}}
		s.Heartbeat = cmp.Or(s.Heartbeat, DefaultHeartbeat)
		if len(s.UIDs) == 0 {
			s.UIDs = []uint32{0}
		}
		for _, t := range s.Conditions {
			s.conditions[t] = &condition{}
			in.types[t] = s
		}
		in.sources[s.Name] = s
		in.order = append(in.order, s)
	}
	return in, nil
}

// UIDs returns the users that may report for any source.
func (in *Intake) UIDs() []uint32 {
	var out []uint32
	for _, s := range in.order {
		out = append(out, s.UIDs...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Report accepts a peer's report as a whole, or rejects it with a *Refusal. key is the sender's
// key for this report, if any: if the report is sent again, its events have the same identity.
func (in *Intake) Report(peer Peer, key string, body []byte) (client.Answer, error) {
	w, mistakes := decode(body)
	in.mu.Lock()
	defer in.mu.Unlock()
	name, answer, err := in.take(peer, key, w, mistakes)
	outcome := Accepted
	if err != nil {
		outcome = err.Outcome
	}
	in.counts.reports.WithLabelValues(name, string(outcome)).Inc()
	if err != nil {
		return client.Answer{}, err
	}
	in.counts.warnings.WithLabelValues(name).Add(float64(len(answer.Warnings)))
	return answer, nil
}

// take implements Report; name is the source whose counters apply.
func (in *Intake) take(peer Peer, key string, w *wireStatus, mistakes []client.Field) (name string, _ client.Answer, _ *Refusal) {
	none := client.Answer{}
	if in.emit == nil {
		return "", none, refuse(Closing, "the agent accepts no reports now")
	}
	if !validKey(key) {
		return "", none, refuse(Invalid, fmt.Sprintf("%s: want at most %d printable ASCII characters", client.KeyHeader, client.MaxKey))
	}
	if len(mistakes) > 0 {
		return "", none, refuse(Invalid, "the report is not valid", mistakes...)
	}
	if w.Source == nil || *w.Source == "" {
		return "", none, refuse(Invalid, "the report is not valid", client.Field{Field: "source", Message: "is missing"})
	}
	s := in.sources[*w.Source]
	if s == nil {
		return "", none, refuse(Forbidden, "the source is not configured",
			client.Field{Field: "source", Message: shown(*w.Source) + " is not in the agent's configuration (reports:)"})
	}
	if !slices.Contains(s.UIDs, peer.UID) {
		// Don't count it for the source, which didn't send it.
		return "", none, refuse(Forbidden, fmt.Sprintf("user %d may not report for this source", peer.UID),
			client.Field{Field: "source", Message: fmt.Sprintf("%s may be reported by user %v", s.Name, s.UIDs)})
	}
	if peer.Foreign != "" && !s.Pods {
		return "", none, refuse(Forbidden, "clients for this source must run on the machine itself or in the agent's pod: "+peer.Foreign,
			client.Field{Field: "source", Message: s.Name + " has no pods: true in the agent's configuration"})
	}
	now := time.Now()
	c := checker{now: now.Round(0)}
	b := c.batch(w, s.Heartbeat)
	if len(c.mistakes) > 0 {
		return s.Name, none, refuse(Invalid, "the report is not valid", c.mistakes...)
	}
	if r := in.own(s, &b); r != nil {
		return s.Name, none, r
	}
	changes := s.changes(&b)
	if tooMany, wait := s.limits.take(now, len(b.events), changes); tooMany != "" {
		r := refuse(RateLimit, "too many "+tooMany+" in a short time", client.Field{Field: tooMany, Message: rateText(tooMany)})
		r.RetryAfter = wait
		return s.Name, none, r
	}
	in.accept(s, &b, key, now)
	return s.Name, client.Answer{Warnings: c.warnings, ValidFor: b.validFor.String()}, nil
}

func validKey(key string) bool {
	return len(key) <= client.MaxKey && !slices.ContainsFunc([]byte(key), func(c byte) bool { return c < ' ' || c > '~' })
}

// own refuses condition types that don't belong to the source, and too many different reasons.
func (in *Intake) own(s *source, b *batch) *Refusal {
	for i, c := range b.conditions {
		if s.conditions[c.Type] != nil {
			continue
		}
		field := "conditions[" + strconv.Itoa(i) + "].type"
		if other := in.types[c.Type]; other != nil {
			return refuse(Conflict, "the condition is another source's", client.Field{Field: field, Message: c.Type + " belongs to source " + other.Name})
		}
		if in.owner != nil {
			if rule := in.owner(c.Type); rule != "" {
				return refuse(Conflict, "a rule already sets this condition", client.Field{Field: field, Message: c.Type + " is set by rule " + rule})
			}
		}
		return refuse(Forbidden, "the condition is not configured",
			client.Field{Field: field, Message: c.Type + " is not in the agent's configuration of source " + s.Name})
	}
	news := map[string]bool{}
	for field, reason := range b.reasons() {
		if s.reasons[reason] {
			continue
		}
		if news[reason] = true; len(s.reasons)+len(news) > maxReasons {
			return refuse(Invalid, "too many different reasons", client.Field{Field: field,
				Message: fmt.Sprintf("%s would exceed %d reasons of this source since the agent started: put details into the message", shown(reason), maxReasons)})
		}
	}
	return nil
}

// reasons returns the reasons that are used, by field.
func (b *batch) reasons() iter.Seq2[string, string] {
	return func(yield func(field, reason string) bool) {
		for i, e := range b.events {
			if e.Reason != "" && !yield("events["+strconv.Itoa(i)+"].reason", e.Reason) {
				return
			}
		}
		for i, c := range b.conditions {
			if c.Status == client.True && c.Reason != "" && !yield("conditions["+strconv.Itoa(i)+"].reason", c.Reason) {
				return
			}
		}
	}
}

// accept emits what is new in a report that passed all checks.
func (in *Intake) accept(s *source, b *batch, key string, now time.Time) {
	if s.until.IsZero() {
		in.sight(s, "")
	}
	s.heard, s.until = now, now.Add(b.validFor)
	for _, reason := range b.reasons() {
		s.reasons[reason] = true
	}
	for i, e := range b.events {
		boot := max(1, hostfs.BootTime()-now.Sub(e.Timestamp)) // not before the boot
		report(in.emit, EventsName(s.Name, e.Severity), e.Timestamp, boot, &event.CheckData{
			Status: event.CheckProblem, Reason: e.Reason, Message: e.Message, ID: in.eventID(key, i),
		})
	}
	changes := 0
	for _, c := range b.conditions {
		st := s.conditions[c.Type]
		st.heard = now
		st.until = now.Add(b.validFor)
		st.kept = time.Time{}
		if !st.differs(&c) {
			continue
		}
		st.said = c
		changes++
		in.reportCondition(s, &c, in.emit)
	}
	in.counts.events.WithLabelValues(s.Name).Add(float64(len(b.events)))
	in.counts.changes.WithLabelValues(s.Name).Add(float64(changes))
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// sight reports that events of a daemon can be received or, with a reason, that they can't.
func (in *Intake) sight(s *source, blind string) {
	for _, severity := range []client.Severity{client.Info, client.Warn} {
		reportSight(in.emit, EventsName(s.Name, severity), blind)
	}
}

// differs reports whether the condition has to be reported. Reasons matter only if they are shown.
func (st *condition) differs(c *client.Condition) bool {
	return st.said.Status != c.Status || c.Status == client.True && st.said.Reason != c.Reason
}

func (s *source) changes(b *batch) (n int) {
	for i := range b.conditions {
		if s.conditions[b.conditions[i].Type].differs(&b.conditions[i]) {
			n++
		}
	}
	return n
}

// eventID returns the identity of an event: derived from the sender's key, else a new one.
func (in *Intake) eventID(key string, i int) string {
	if key != "" {
		return key + "/" + strconv.Itoa(i)
	}
	in.serial++
	return in.nonce + "." + strconv.FormatUint(in.serial, 10)
}

// ReportLasting emits the last reported state of each condition again.
func (in *Intake) ReportLasting(emit func(*event.Event)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.order {
		for _, t := range s.Conditions {
			if st := s.conditions[t]; st.said.Status != "" {
				in.reportCondition(s, &st.said, emit)
			}
		}
	}
}

func (in *Intake) reportCondition(s *source, c *client.Condition, emit func(*event.Event)) {
	status := map[client.ConditionStatus]string{
		client.True: event.CheckProblem, client.False: event.CheckOK, client.Unknown: event.CheckUnknown,
	}[c.Status]
	report(emit, CheckName(s.Name, c.Type), c.Transition, hostfs.BootTime(), &event.CheckData{Status: status, Reason: c.Reason, Message: c.Message})
}

// reportSight reports that a check is up or, with a reason, that it is down.
func reportSight(emit func(*event.Event), check, blind string) {
	stem := event.NamedStem(event.CheckStem, check)
	emit(hostfs.Stamped(event.Event{
		Kind: event.Source, Source: stem, SourceUp: &event.SourceData{Stem: stem, Up: blind == "", Reason: blind},
	}))
}

func report(emit func(*event.Event), check string, at time.Time, boot time.Duration, d *event.CheckData) {
	d.Check = check
	emit(&event.Event{
		Kind: event.Check, Time: at, BootTime: event.Duration(boot), CPU: event.NoCPU,
		Source: event.NamedStem(event.CheckStem, check), Check: d,
	})
}
