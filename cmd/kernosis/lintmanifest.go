package main

import (
	"bytes"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/lint"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/review"
)

// splitManifests reads the files, and separates those with objects of kernosis.io from the others.
func splitManifests(files []lintFile) (others []lintFile, manifests []document.File, err error) {
	group := []byte(v1alpha1.GroupVersion().String())
	for _, f := range files {
		if f.data, err = document.ReadAtMost(f.path, maxLintFile); err != nil {
			return nil, nil, err
		}
		if bytes.Contains(f.data, group) {
			manifests = append(manifests, document.File{Name: f.path, Data: f.data})
		} else {
			others = append(others, f)
		}
	}
	return others, manifests, nil
}

// lintManifests checks manifests. rules are the shipped and the given ones; in also has
// those of node-problem-detector's files.
func lintManifests(files []document.File, rules *detector.RuleSet, in *lint.Input) ([]lint.Finding, error) {
	if len(files) == 0 {
		return nil, nil
	}
	r, err := manifest.NewReader()
	if err != nil {
		return nil, err
	}
	m, err := r.Parse(files...)
	if err != nil {
		return nil, err
	}
	known, err := reviewed(r)
	if err != nil {
		return nil, err
	}
	for _, rule := range rules.Rules() {
		known.Rules = append(known.Rules, rule.Name)
		known.Reasons = append(known.Reasons, rule.Reason)
	}
	for _, c := range rules.Conditions() {
		known.Conditions = append(known.Conditions, c.Type)
	}
	for i := range in.Rules {
		known.Reasons = append(known.Reasons, in.Rules[i].Reason)
		known.Conditions = append(known.Conditions, in.Rules[i].Condition)
	}
	return lintFindings(review.Manifests(m, known)), nil
}

// reviewed returns the shipped and built-in objects that manifests may refer to.
func reviewed(r *manifest.Reader) (review.Known, error) {
	known := review.Known{Builtins: catalog.All(operation.Host{})}
	files, err := manifest.ShippedFiles()
	if err != nil {
		return known, err
	}
	known.Shipped, err = r.Parse(files...)
	return known, err
}

// lintFindings converts the findings of a review to lint's type.
func lintFindings(found []review.Finding) []lint.Finding {
	var out []lint.Finding
	for _, f := range found {
		msg := f.Place.Msg
		if f.Place.Field != "" {
			msg = f.Place.Field + ": " + msg
		}
		out = append(out, lint.Finding{File: f.Place.File, Line: f.Place.Line, Level: lint.Level(f.Level), Code: f.Code, Message: msg})
	}
	return out
}
