package main

import (
	"errors"
	"slices"
	"testing"
)

// Each part is opened behind those that it needs.
func TestPartsAreInOrder(t *testing.T) {
	var open []string
	for _, p := range agentParts() {
		for _, before := range p.after {
			if !slices.Contains(open, before) {
				t.Errorf("%s needs %s, which is not open yet", p.name, before)
			}
		}
		if slices.Contains(open, p.name) {
			t.Errorf("two parts are %s", p.name)
		}
		open = append(open, p.name)
	}
}

// Parts are closed in the opposite order, also behind an error, and no error is lost.
func TestPartsAreClosed(t *testing.T) {
	var p parts
	var closed []int
	first := errors.New("first")
	for i := range 3 {
		p.onClose(func() error {
			closed = append(closed, i)
			if i == 1 {
				return first
			}
			return nil
		})
	}
	if err := p.close(); !errors.Is(err, first) || !slices.Equal(closed, []int{2, 1, 0}) {
		t.Errorf("%v, %v", closed, err)
	}
}
