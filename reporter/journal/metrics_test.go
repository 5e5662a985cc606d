package journal

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	j := mustOpen(t, t.TempDir(), Options{})
	for n := range 3 {
		mustAppend(t, j, oom(n))
	}
	if _, _, err := j.Add(oom(3)); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(j.Metrics()...)
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kernosis_journal_entries_total Entries written to the journal.
# TYPE kernosis_journal_entries_total counter
kernosis_journal_entries_total 3
# HELP kernosis_journal_failed_total Entries lost because the journal could not be written.
# TYPE kernosis_journal_failed_total counter
kernosis_journal_failed_total 0
# HELP kernosis_journal_waiting_entries Entries in memory that are waiting for the disk.
# TYPE kernosis_journal_waiting_entries gauge
kernosis_journal_waiting_entries 1
`), "kernosis_journal_entries_total", "kernosis_journal_failed_total", "kernosis_journal_waiting_entries"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r); err != nil || n != 8 {
		t.Errorf("%d metrics (%v)", n, err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
