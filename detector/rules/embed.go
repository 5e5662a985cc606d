// Package rules holds the rules shipped with Kernosis, one file a stem, each
// with its unit tests beside it (<stem>_test.yaml).
//
// Load them with detector.Load(rules.FS). A rule of the same name in the operator's
// directory replaces the shipped one (detector.LoadDir).
package rules

import "embed"

// FS holds the shipped rule files and their tests.
//
//go:embed *.yaml
var FS embed.FS

// Schemas holds the JSON Schemas of our files: schema/rules.json, schema/tests.json and
// schema/mutes.json. They are generated from the types of the readers.
//
//go:embed schema/*.json
var Schemas embed.FS
