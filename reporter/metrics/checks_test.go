package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestChecks(t *testing.T) {
	r := prometheus.NewRegistry()
	c := NewChecks(r)
	c.Known("ntp", "ok", "problem", "unknown")
	c.Result("ntp", "problem", 20*time.Millisecond, 7)
	c.Result("dns", "ok", time.Second, 0)
	err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kernosis_check_runs_total Runs of check programs, by status (ok, problem, unknown).
# TYPE kernosis_check_runs_total counter
kernosis_check_runs_total{check="dns",status="ok"} 1
kernosis_check_runs_total{check="ntp",status="ok"} 0
kernosis_check_runs_total{check="ntp",status="problem"} 1
kernosis_check_runs_total{check="ntp",status="unknown"} 0
# HELP kernosis_check_output_truncated_bytes_total Bytes of check program output that messages omit.
# TYPE kernosis_check_output_truncated_bytes_total counter
kernosis_check_output_truncated_bytes_total{check="dns"} 0
kernosis_check_output_truncated_bytes_total{check="ntp"} 7
`), "kernosis_check_runs_total", "kernosis_check_output_truncated_bytes_total")
	if err != nil {
		t.Error(err)
	}
}
