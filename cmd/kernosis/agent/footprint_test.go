package agent

import "testing"

// The program continues to work.
func TestForgetPages(t *testing.T) {
	if err := forgetPages(); err != nil {
		t.Error(err)
	}
}
