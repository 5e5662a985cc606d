package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Defaults of a Source.
const (
	DefaultHeartbeat = 30 * time.Second
	DefaultGather    = time.Second
	DefaultBuffer    = 1000
)

// Source describes the daemon that reports. Zero values mean the defaults.
type Source struct {
	// Name is the name in the agent's configuration. Mandatory.
	Name string
	// Conditions are the initial conditions. Leave out unknown ones: for the agent they are Unknown.
	Conditions []Condition
	// Heartbeat is how often the conditions are repeated.
	Heartbeat time.Duration
	// ValidFor is how long the agent keeps the conditions valid unless they are repeated; 0: three
	// heartbeats, within MinValid and MaxValid.
	ValidFor time.Duration
	// Gather is how long changes are collected before they are sent together; negative: not at all.
	Gather time.Duration
	// Buffer is how many events are kept until they are sent.
	Buffer int
	// Discard drops events whose first attempt to send failed, instead of retrying.
	Discard bool
	// OnError is called with the error of each failed attempt, from the sending goroutine; an
	// answer of the agent is a *RefusedError. It may be nil.
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
	s.Heartbeat = cmp.Or(s.Heartbeat, DefaultHeartbeat)
	s.ValidFor = cmp.Or(s.ValidFor, min(max(3*s.Heartbeat, MinValid), MaxValid))
	if s.ValidFor < MinValid || s.ValidFor > MaxValid {
		errs = append(errs, fmt.Errorf("validFor %v: want %v to %v", s.ValidFor, MinValid, MaxValid))
	}
	if s.ValidFor <= s.Heartbeat {
		errs = append(errs, fmt.Errorf("validFor %v: want more than the heartbeat %v", s.ValidFor, s.Heartbeat))
	}
	s.Gather = cmp.Or(s.Gather, DefaultGather)
	s.Buffer = cmp.Or(s.Buffer, DefaultBuffer)
	if len(s.Conditions) > MaxConditions {
		errs = append(errs, fmt.Errorf("%d conditions: at most %d", len(s.Conditions), MaxConditions))
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("source %q: %w", s.Name, err)
	}
	return s, nil
}

// RefusedError is the agent's answer to a report that it did not accept.
type RefusedError struct {
	Status     int           // HTTP status: 400, 403, 409, 413, 429, 503
	Answer     Answer        // the mistakes and their fields
	RetryAfter time.Duration // for status 429
}

func (e *RefusedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "report refused: %d %s", e.Status, e.Answer.Error)
	for _, f := range e.Answer.Fields {
		b.WriteString("; " + f.Field + ": " + f.Message)
	}
	return b.String()
}

// temporary reports whether the same report may be accepted later.
func (e *RefusedError) temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// of reports whether the answer is about a field.
func (e *RefusedError) of(field string) bool {
	return len(e.Answer.Fields) > 0 && e.Answer.Fields[0].Field == field
}
