// Package yamldoc reads manifests, YAML or JSON with any number of documents, into
// values whose places in the file are known, so that a mistake is told with its line.
//
// It is strict where readers differ: aliases, keys that stand twice, and words that are
// a boolean to some and text to others are mistakes. What is read is bounded.
package yamldoc
