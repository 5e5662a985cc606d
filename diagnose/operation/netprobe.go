package operation

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/netprobe"
)

// netProbed is how a probe went.
type netProbed struct{ netprobe.Result }

// netFrom has a probe's connections made in a network namespace.
func (h Host) netFrom(p netPlace) func(func() error) error {
	return func(connect func() error) error { return netlook.Within(h.FS, p.inode, p.pid, connect) }
}

// netProbeOnce probes within a time. It fails only if the run has ended meanwhile.
func netProbeOnce(ctx context.Context, p *netprobe.Probe, timeout time.Duration) (*netProbed, error) {
	r := &netProbed{p.RunWithin(ctx, timeout)}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// report keeps the results.
func (r *netProbed) report(to *finding, p *netprobe.Probe) {
	to.text("succeeded", strconv.FormatBool(r.Err == nil))
	to.text("phase", r.Phase)
	to.text("probed", p.To.String())
	to.text("status", r.Status)
	to.text("redirect", r.Redirect)
	if r.Err != nil {
		to.text("error", r.Err.Error())
	}
	for name, d := range map[string]time.Duration{
		"connectTime": r.Connect, "tlsTime": r.TLS, "firstByteTime": r.FirstByte, "totalTime": r.Took,
	} {
		if d > 0 {
			to.text(name, d.Round(time.Microsecond).String())
		}
	}
}

// String is how the probe went, on a line.
func (r *netProbed) String() string {
	if r.Err != nil {
		return fmt.Sprintf("failed at %s after %s: %s", netprobe.PhaseText(r.Phase), r.Took.Round(time.Millisecond), display.Safe(r.Err.Error(), netMaxName*2))
	}
	if r.Status != "" {
		return fmt.Sprintf("%s in %s", display.Safe(r.Status, netMaxName), r.Took.Round(time.Microsecond))
	}
	return fmt.Sprintf("connected in %s", r.Took.Round(time.Microsecond))
}

// netHeaders reads "Name: value|Name: value".
func netHeaders(text string) (http.Header, error) {
	headers := http.Header{}
	for part := range strings.SplitSeq(text, "|") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("headers: %q is not as Name: value", bytes.TrimSpace([]byte(part)))
		}
		headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return headers, nil
}
