package agent

import "testing"

// The program goes on as before.
func TestForgetPages(t *testing.T) {
	if err := forgetPages(); err != nil {
		t.Error(err)
	}
}
