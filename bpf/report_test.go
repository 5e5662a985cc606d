package bpf

import (
	"slices"
	"testing"
)

func TestFallbacks(t *testing.T) {
	reports := []VariantReport{
		{Stem: "a", Hook: "first", Program: "best", State: Attached},
		{Stem: "a", Hook: "first", Program: "second", State: Unused},
		{Stem: "a", Hook: "context", Program: "fentry", State: Absent, Reason: "no BTF"},
		{Stem: "a", Hook: "context", Program: "kprobe", State: Adopted},
		{Stem: "a", Hook: "missing", Program: "tracepoint", State: Absent, Reason: "no module"},
		{Stem: "b", Hook: "context", Program: "other", State: Attached},
		{Stem: "b", Hook: "later", Program: "waits", State: OnDemand},
	}
	want := []string{"context by kprobe: fentry is absent (no BTF)"}
	if got := Fallbacks(reports); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
