package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// What a Source has where it doesn't say.
const (
	DefaultHeartbeat = 30 * time.Second
	DefaultGather    = time.Second
	DefaultBuffer    = 1000
)

// Source is the daemon that reports. Zero values are the defaults.
type Source struct {
	// Name is that of the agent's configuration. Mandatory.
	Name string
	// Conditions are what is so at the beginning. Those that are not known yet are
	// best left out: the agent has them Unknown.
	Conditions []Condition
	// Heartbeat is how often the conditions are repeated.
	Heartbeat time.Duration
	// ValidFor is how long they count with the agent, unless repeated; 0: three
	// heartbeats, within report.MinValid and report.MaxValid.
	ValidFor time.Duration
	// Gather is how long what changes is gathered to be sent at once; negative: not
	// at all.
	Gather time.Duration
	// Buffer is how many events are kept until they are sent.
	Buffer int
	// Discard has events dropped that could not be sent at the first time, in place
	// of sending them again. Conditions are repeated anyway.
	Discard bool
	// OnError is called with the error of each failed attempt, from the goroutine that
	// sends; an answer of the agent is a *RefusedError. It may be nil.
	OnError func(error)
}

func (s Source) normal() (Source, error) {
	var errs []error
	if s.Name == "" {
		errs = append(errs, errors.New("name is missing"))
	}
	if s.Heartbeat < 0 || s.Buffer < 0 {
		errs = append(errs, errors.New("heartbeat and buffer: want more than 0"))
	}
	if s.Heartbeat == 0 {
		s.Heartbeat = DefaultHeartbeat
	}
	if s.ValidFor == 0 {
		s.ValidFor = min(max(3*s.Heartbeat, MinValid), MaxValid)
	}
	if s.ValidFor < MinValid || s.ValidFor > MaxValid {
		errs = append(errs, fmt.Errorf("validFor %v: want %v to %v", s.ValidFor, MinValid, MaxValid))
	}
	if s.ValidFor <= s.Heartbeat {
		errs = append(errs, fmt.Errorf("validFor %v: want more than the heartbeat %v", s.ValidFor, s.Heartbeat))
	}
	if s.Gather == 0 {
		s.Gather = DefaultGather
	}
	if s.Buffer == 0 {
		s.Buffer = DefaultBuffer
	}
	if len(s.Conditions) > MaxConditions {
		errs = append(errs, fmt.Errorf("%d conditions: at most %d", len(s.Conditions), MaxConditions))
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("source %q: %w", s.Name, err)
	}
	return s, nil
}

// RefusedError is the agent's answer to a report that it has not taken.
type RefusedError struct {
	Status     int           // of HTTP: 400, 403, 409, 413, 429, 503
	Answer     Answer        // what is wrong with which field
	RetryAfter time.Duration // of 429
}

func (e *RefusedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "report refused: %d %s", e.Status, e.Answer.Error)
	for _, f := range e.Answer.Fields {
		b.WriteString("; " + f.Field + ": " + f.Message)
	}
	return b.String()
}

// temporary reports whether the same report may be taken later.
func (e *RefusedError) temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// of reports whether it is about a field.
func (e *RefusedError) of(field string) bool {
	return len(e.Answer.Fields) > 0 && e.Answer.Fields[0].Field == field
}
