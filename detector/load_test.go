package detector_test

import (
	"testing"

	"github.com/kernosis/kernosis/detector"
)

func TestLoadShipped(t *testing.T) {
	if _, err := detector.Load(detector.Shipped()); err != nil {
		t.Fatal(err)
	}
}
