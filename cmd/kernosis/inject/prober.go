package inject

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"golang.org/x/sys/unix"
)

// probeTimeout is kubelet's default for a probe (timeoutSeconds).
const probeTimeout = time.Second

// slowAfter is the prober's time-out, measured on its connections: these are opened a moment
// after the time-out begins.
const slowAfter = probeTimeout - 50*time.Millisecond

const proberName = "kn-prober"

// Outcome is how one probe ended, as the prober sees it.
type Outcome string

// The outcomes of a probe.
const (
	Answered       Outcome = "answered"         // a 2xx or 3xx status
	ConnRefused    Outcome = "refused"          // ECONNREFUSED
	ConnReset      Outcome = "reset"            // ECONNRESET after connecting
	ConnectTimeout Outcome = "connect time-out" // never connected
	AnswerTimeout  Outcome = "answer time-out"  // connected, no answer
	NoRoute        Outcome = "no route"         // ENETUNREACH, EHOSTUNREACH
	OtherFailure   Outcome = "other failure"
)

// Attempt is one probe.
type Attempt struct {
	Outcome Outcome       `json:"outcome"`
	Error   string        `json:"error,omitempty"` // as kubelet would log it
	Took    time.Duration `json:"took"`
}

// prober runs the process that probes, in a network namespace of its own.
func prober([]string) error {
	if _, err := setComm(proberName); err != nil {
		return err
	}
	return serve(func(url string) (Attempt, error) { return probe(url), nil })
}

// probe does what kubelet's HTTP prober does: a new connection, a GET, one time-out for both.
func probe(url string) Attempt {
	connected := false
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	})
	client := http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Attempt{Outcome: OtherFailure, Error: err.Error()}
	}
	req.Header.Set("User-Agent", "kube-probe/kernosis-inject")
	began := time.Now()
	resp, err := client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10)) // as kubelet limits it
		_ = resp.Body.Close()
	}
	a := Attempt{Took: time.Since(began)}
	if err == nil && resp.StatusCode >= 200 && resp.StatusCode < 400 {
		a.Outcome = Answered
		return a
	} else if err == nil {
		err = errors.New("HTTP probe failed with statuscode: " + resp.Status)
	}
	a.Outcome, a.Error = outcome(err, connected), err.Error()
	return a
}

func outcome(err error, connected bool) Outcome {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return ConnRefused
	case errors.Is(err, unix.ECONNRESET):
		return ConnReset
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return NoRoute
	case errors.As(err, &timeout) && timeout.Timeout() && connected:
		return AnswerTimeout
	case errors.As(err, &timeout) && timeout.Timeout():
		return ConnectTimeout
	}
	return OtherFailure
}
