package main

import (
	"slices"
	"testing"
)

// kubectl runs a plugin by its name, and asks for completions by another name.
func TestCalledAsPlugin(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{[]string{"/usr/bin/kubectl-kernosis", "why", "node"}, []string{"why", "node"}},
		{[]string{"kubectl_complete-kernosis", "why", ""}, []string{"__complete", "why", ""}},
		{[]string{"kernosis", "why"}, []string{"why"}},
	} {
		if got := calledAs(c.args); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	if !isPlugin([]string{"/opt/kubectl-kernosis"}) || isPlugin([]string{"kernosis"}) {
		t.Error("what is a plugin")
	}
}

func TestJournalDirs(t *testing.T) {
	for name, want := range map[string]bool{
		"4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11": true, "web-1": false, "web-1-a-b-c-d-e-f-g-h-i-j-k-l-m-n-o-p": false,
	} {
		if looksLikeUID(name) != want {
			t.Errorf("%s: UID %v", name, !want)
		}
	}
	f := whyFlags{stateDir: "/s"}
	if state, dir := f.journalDirs(); state != "/s" || dir != "/s/journal" {
		t.Errorf("%s %s", state, dir)
	}
	f.journal = t.TempDir()
	if state, dir := f.journalDirs(); state != "" || dir != f.journal {
		t.Errorf("%s %s", state, dir)
	}
}
