package event

import (
	"maps"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
)

// Bounds of [Event.PodLabels]. The API server allows no longer names and values either.
const (
	MaxPodLabels  = 64
	MaxLabelName  = 253 + 1 + 63 // a prefix, a slash and a name
	MaxLabelValue = 63
	// maxLabelBytes bounds all names and values of a pod together, because each of its events
	// contains them. Pods seldom have more than 1 KiB.
	maxLabelBytes = 4096
)

// SafeLabels returns the labels that an event may have: the first 64 by name, of at most 4 KiB
// together. It omits labels that the API server would refuse because of their length or unprintable
// characters. If nothing has to change, it returns labels itself, without allocating.
func SafeLabels(labels map[string]string) map[string]string {
	bytes, safe := 0, true
	for name, value := range labels {
		bytes += len(name) + len(value)
		safe = safe && safeLabel(name, value)
	}
	if safe && bytes <= maxLabelBytes && len(labels) <= MaxPodLabels {
		return labels
	}
	kept := make(map[string]string, MaxPodLabels)
	bytes = 0
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		if !safeLabel(name, value) {
			continue
		}
		if bytes += len(name) + len(value); bytes > maxLabelBytes || len(kept) == MaxPodLabels {
			break
		}
		kept[name] = value
	}
	return kept
}

func safeLabel(name, value string) bool {
	return len(name) <= MaxLabelName && len(value) <= MaxLabelValue && display.IsSafe(name) && display.IsSafe(value)
}
