package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses between attempts: a restarted agent is back within seconds, an upgraded one within a minute.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
	// sendTime bounds one attempt.
	sendTime = 10 * time.Second
	// flushTime bounds Close.
	flushTime = 5 * time.Second
)

// ErrClosed is returned by methods after Close.
var ErrClosed = errors.New("client is closed") //nolint:gochecknoglobals // a constant

// ErrFull is returned for an event if the buffer is full.
var ErrFull = errors.New("buffer of events is full") //nolint:gochecknoglobals // a constant

// Client sends reports to the agent. Create one with New. Its methods are safe for concurrent use
// and, except Run and Close, never wait for the agent.
type Client struct {
	source Source
	http   *http.Client
	nonce  string
	pauses backoff.BackOff // used only by the sending goroutine

	wake   chan struct{}
	closed context.Context // ended by Close
	end    context.CancelFunc
	once   sync.Once
	send   sync.Mutex // held while sending

	mu         sync.Mutex
	conditions []Condition
	changed    bool // since the last report
	events     []Event
	batch      []Event // being sent; retries use the same key
	serial     uint64  // of batches
	stats      Stats
}

// Stats are the counters of a client.
type Stats struct {
	Reports  uint64 // accepted by the agent
	Events   uint64 // events in these reports
	Failures uint64 // attempts that failed
	// Dropped events: the buffer was full (Full), the agent refused them (Refused), they were not
	// to be retried or were left at Close (Discarded).
	Full, Refused, Discarded uint64
	// Waiting is the number of events that were not sent yet.
	Waiting int
}

// New returns a client for the agent at a socket; it sends nothing before Run.
func New(socket string, source Source) (*Client, error) {
	source, err := source.normal()
	if err != nil {
		return nil, err
	}
	pauses := backoff.NewExponentialBackOff() // with a jitter of one half
	pauses.InitialInterval, pauses.MaxInterval = firstPause, longestPause
	c := &Client{
		source: source, nonce: rand.Text(), pauses: pauses, wake: make(chan struct{}, 1),
		conditions: slices.Clone(source.Conditions), changed: true,
		http: &http.Client{Timeout: sendTime, Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
			MaxIdleConns: 1, IdleConnTimeout: time.Minute, // shorter than the agent's
		}},
	}
	c.closed, c.end = context.WithCancel(context.Background())
	return c, nil
}

// SetCondition sets a condition for the following reports. If its status changes and it has no
// Transition, that is set to now.
func (c *Client) SetCondition(cond Condition) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Err() != nil {
		return ErrClosed
	}
	i := slices.IndexFunc(c.conditions, func(o Condition) bool { return o.Type == cond.Type })
	if i < 0 {
		if len(c.conditions) == MaxConditions {
			return fmt.Errorf("condition %s: at most %d are allowed", cond.Type, MaxConditions)
		}
		i = len(c.conditions)
		c.conditions = append(c.conditions, Condition{})
	}
	old := c.conditions[i]
	cond.Message = bounded(cond.Message)
	if cond.Transition.IsZero() {
		if cond.Transition = old.Transition; old.Status != cond.Status {
			cond.Transition = time.Now()
		}
	}
	c.conditions[i] = cond
	if old.Status != cond.Status || old.Reason != cond.Reason {
		c.changed = true
		c.poke()
	}
	return nil
}

// Event reports an event; without a timestamp it gets the current time. If the buffer is full, it
// returns ErrFull, and the event is dropped and counted.
func (c *Client) Event(e Event) error {
	if e.Timestamp.IsZero() {
		e.Timestamp = time.Now()
	}
	e.Message = bounded(e.Message)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Err() != nil {
		return ErrClosed
	}
	if len(c.events)+len(c.batch) >= c.source.Buffer {
		c.stats.Full++
		return ErrFull
	}
	c.events = append(c.events, e)
	c.poke()
	return nil
}

// bounded cuts a message like the agent would, apart from escapes.
func bounded(message string) string {
	if len(message) <= MaxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:MaxMessage-len("…")], "") + "…"
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Waiting = len(c.events) + len(c.batch)
	return s
}

// Close sends what is waiting, for a few seconds at most, and ends Run. If something could not be
// sent, it returns the error; those events are dropped and counted. It may be called again.
func (c *Client) Close() error {
	var err error
	c.once.Do(func() {
		c.end()
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		err = c.flush(ctx)
		c.http.CloseIdleConnections()
	})
	return err
}

func (c *Client) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
