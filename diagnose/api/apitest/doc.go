// Package apitest has the manifests that the schemas of kernosis.io accept and refuse, for
// the tests of all that holds manifests to them: the API server, and package manifest. It also
// has a client of these kinds, and watches whether a policy's budget is kept.
//
// It must not be imported by anything but tests.
package apitest
