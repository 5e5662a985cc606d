package npd_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/detector/npd"
)

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T any](t *testing.T, want, got T, about ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", strings.Join(about, " "), diff)
	}
}

// parse reads a configuration as if every check program existed.
func parse(t *testing.T, name, content string) *npd.File {
	t.Helper()
	f, err := npd.Parse(name, []byte(content), npd.Options{AnyProgram: true})
	noError(t, err)
	return f
}
