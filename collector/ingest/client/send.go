package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Run sends until ctx ends or Close is called, and returns nil; Close sends the rest. Call it once.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.closed, cancel)() // Close aborts a running attempt and makes its own
	// The first report shows that the daemon is alive.
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := false
	for {
		wake := c.wake
		if failed {
			wake = nil // changes are sent after the pause, with the rest
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			if !sleep(ctx, max(0, c.source.Gather)) {
				return nil
			}
		case <-timer.C:
		}
		var next time.Duration
		next, failed = c.sendAll(ctx)
		timer.Reset(next)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// sendAll sends all events, in several reports if need be. It returns when the next report is due.
func (c *Client) sendAll(ctx context.Context) (next time.Duration, failed bool) {
	c.send.Lock()
	defer c.send.Unlock()
	for {
		more, err := c.sendOne(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return c.source.Heartbeat, true
		case err != nil:
			return c.pause(ctx, err), true
		case !more:
			c.pauses.Reset()
			return c.source.Heartbeat, false
		}
	}
}

// pause returns how long to wait after a failure. If the agent rejects events because there were too
// many, pause sends only the conditions, as a sign of life.
func (c *Client) pause(ctx context.Context, err error) time.Duration {
	wait := min(c.pauses.NextBackOff(), c.source.Heartbeat)
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		return wait
	}
	if refused.Status == http.StatusTooManyRequests && refused.of("events") {
		conditions, _ := c.latest()
		if err := c.post(ctx, "", conditions, nil); err != nil {
			c.failed(err)
		} else {
			c.taken(0)
		}
	}
	return min(max(wait, refused.RetryAfter), c.source.Heartbeat)
}

// sendOne sends one report and returns whether there are more events. After errors the caller waits.
func (c *Client) sendOne(ctx context.Context) (more bool, err error) {
	conditions, changed := c.latest()
	c.mu.Lock()
	if len(c.batch) == 0 && len(c.events) > 0 {
		n := fitting(c.events)
		c.batch = slices.Clone(c.events[:n])
		c.events = slices.Delete(c.events, 0, n)
		c.serial++
	}
	batch, key := c.batch, ""
	if len(batch) > 0 {
		key = c.nonce + "-" + strconv.FormatUint(c.serial, 36)
	}
	c.mu.Unlock()
	err = c.post(ctx, key, conditions, batch)
	if err == nil {
		c.taken(len(batch))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.batch = nil
		return len(c.events) > 0, nil
	}
	c.failed(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = c.changed || changed
	refused, ok := errors.AsType[*RefusedError](err)
	switch {
	case ctx.Err() != nil: // Close sends it
	case ok && !refused.temporary():
		c.stats.Refused += uint64(len(batch))
		c.batch = nil
	case c.source.Discard:
		c.stats.Discarded += uint64(len(batch))
		c.batch = nil
	}
	return false, err
}

// fitting returns how many events fit into a report: an unprintable byte takes six bytes in JSON.
func fitting(events []Event) int {
	room := MaxBody - MaxConditions*6*(MaxMessage+2*MaxReason)
	for i := range events {
		room -= 6*(len(events[i].Message)+len(events[i].Reason)) + 100
		if i == MaxEvents || room < 0 {
			return max(i, 1)
		}
	}
	return len(events)
}

func (c *Client) latest() (conditions []Condition, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, c.changed = c.changed, false
	return slices.Clone(c.conditions), changed
}

func (c *Client) taken(events int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Reports++
	c.stats.Events += uint64(events)
}

func (c *Client) failed(err error) {
	c.mu.Lock()
	c.stats.Failures++
	c.mu.Unlock()
	if c.source.OnError != nil {
		c.source.OnError(err)
	}
}

// flush sends everything that is waiting, and drops what could not be sent.
func (c *Client) flush(ctx context.Context) error {
	c.send.Lock() // Run's attempt ends because its context is cancelled
	defer c.send.Unlock()
	for {
		c.mu.Lock()
		waiting := c.changed || len(c.events)+len(c.batch) > 0
		c.mu.Unlock()
		if !waiting {
			return nil
		}
		_, err := c.sendOne(ctx)
		if err == nil {
			continue
		}
		refused, ok := errors.AsType[*RefusedError](err)
		if ok && !refused.temporary() || ctx.Err() != nil || !sleep(ctx, c.pauses.NextBackOff()) {
			c.mu.Lock()
			left := len(c.events) + len(c.batch)
			c.stats.Discarded += uint64(left)
			c.events, c.batch, c.changed = nil, nil, false
			c.mu.Unlock()
			return fmt.Errorf("%d events were not sent: %w", left, err)
		}
	}
}

// maxAnswer bounds how much of an answer is read.
const maxAnswer = 64 << 10

// post makes one attempt to send a report.
func (c *Client) post(ctx context.Context, key string, conditions []Condition, events []Event) error {
	body, err := json.Marshal(Status{
		Source: c.source.Name, ValidFor: c.source.ValidFor.String(), Events: events, Conditions: conditions,
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	// HTTP requires a host, but the socket is the address.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kernosis"+Path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set(KeyHeader, key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("report: answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	refused := &RefusedError{Status: resp.StatusCode}
	if err := json.Unmarshal(raw, &refused.Answer); err != nil {
		refused.Answer.Error = fmt.Sprintf("%.100q", raw)
	}
	refused.RetryAfter, _ = time.ParseDuration(refused.Answer.RetryAfter) // 0 if there is none
	return refused
}
