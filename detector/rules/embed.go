// Package rules holds the rules shipped with Kernosis, one file a stem, each
// with its unit tests beside it (<stem>_test.yaml).
//
// It is data: load it with detector.Load(rules.FS). A rule of the same name in
// a directory of the operator's replaces the shipped one (detector.LoadDir).
package rules

import "embed"

// FS is the shipped rule files and their tests.
//
//go:embed *.yaml
var FS embed.FS

// Schemas is the JSON Schemas of our files: schema/rules.json, schema/tests.json and
// schema/mutes.json. They are generated from the types of the readers.
//
//go:embed schema/*.json
var Schemas embed.FS
