package process_test

import (
	"testing"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
)

func TestLastLines(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"", 2, ""}, {"a", 2, "a"}, {"a\nb\nc\n", 2, "b\nc"}, {"a\nb\n", 5, "a\nb"}} {
		if got := string(process.LastLines([]byte(c.text), c.n)); got != c.want {
			t.Errorf("last %d of %q: %q, want %q", c.n, c.text, got, c.want)
		}
	}
}
