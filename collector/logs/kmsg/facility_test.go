package kmsg

import "testing"

func TestOnlyFacility0IsTheKernel(t *testing.T) {
	for facility := -1; facility < 300; facility++ {
		if name := facilityName(facility); (name == "kernel") != (facility == 0) || name == "" {
			t.Errorf("facility %d is %q", facility, name)
		}
	}
}
