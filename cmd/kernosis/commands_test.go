package main

import (
	"strings"
	"testing"
)

func TestUnknownCommands(t *testing.T) {
	for args, want := range map[string]string{
		"rules chekc":           `unknown command "chekc" for "kernosis rules": did you mean check?`,
		"diagnose --help later": `unknown command "later" for "kernosis diagnose": see kernosis diagnose --help`,
		"crds frobnicate":       `unknown command "frobnicate" for "kernosis crds": see kernosis crds --help`,
		"rules":                 "",
		"rules --help":          "",
		"rules check":           "",
		"why pod a/b":           "",
		"rulse":                 "", // the root's own, which cobra reports
	} {
		got := ""
		if err := unknownCommand(newRoot(), strings.Fields(args)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
