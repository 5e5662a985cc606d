package config

import (
	"fmt"
	"log/slog"
)

// ParseLevel reads the value of --log-level.
func ParseLevel(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return l, fmt.Errorf("%q: want one of debug, info, warn, error", s)
	}
	return l, nil
}

// LogWarnings logs the warnings that [Load] returned.
func LogWarnings(log *slog.Logger, warnings []string) {
	for _, w := range warnings {
		log.Warn("configuration", "warning", w)
	}
}
