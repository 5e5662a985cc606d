package testenv

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(leakEnv); kind != "" {
		os.Exit(CheckLeaks(func() int { return leak(kind, os.Args[1]) }))
	}
	if role := os.Getenv(holderEnv); role != "" {
		hold(role)
		return
	}
	os.Exit(CheckLeaks(m.Run))
}
