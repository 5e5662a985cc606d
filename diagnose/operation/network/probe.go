package network

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netprobe"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// probeResult is the result of a probe.
type probeResult struct{ netprobe.Result }

// probeOnce probes with a timeout. It returns an error only if ctx is done.
func probeOnce(ctx context.Context, p *netprobe.Probe, timeout time.Duration) (*probeResult, error) {
	r := &probeResult{p.RunWithin(ctx, timeout)}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// report stores the results.
func (r *probeResult) report(to *operation.Finding, p *netprobe.Probe) {
	to.Bool("succeeded", r.Err == nil)
	to.Text("phase", r.Phase)
	to.Text("probed", p.To.String())
	to.Text("status", r.Status)
	to.Text("redirect", r.Redirect)
	if r.Err != nil {
		to.Text("error", r.Err.Error())
	}
	for name, d := range map[string]time.Duration{
		"connectTime": r.Connect, "tlsTime": r.TLS, "firstByteTime": r.FirstByte, "totalTime": r.Took,
	} {
		if d > 0 {
			to.Text(name, d.Round(time.Microsecond).String())
		}
	}
}

// String formats the result in one line.
func (r *probeResult) String() string {
	if r.Err != nil {
		return fmt.Sprintf("failed at %s after %s: %s", netprobe.PhaseText(r.Phase), r.Took.Round(time.Millisecond), display.Safe(r.Err.Error(), maxName*2))
	}
	if r.Status != "" {
		return fmt.Sprintf("%s in %s", display.Safe(r.Status, maxName), r.Took.Round(time.Microsecond))
	}
	return fmt.Sprintf("connected in %s", r.Took.Round(time.Microsecond))
}

// headers parses "Name: value|Name: value".
func headers(text string) (http.Header, error) {
	headers := http.Header{}
	for part := range strings.SplitSeq(text, "|") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("headers: %q: want Name: value", bytes.TrimSpace([]byte(part)))
		}
		headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return headers, nil
}
