// Package apitest has manifests that the schemas of kernosis.io accept or refuse, for tests of
// everything that validates manifests: the API server and package manifest. It also has a client
// for these kinds, makes OperationSets, and checks whether a policy's budget is kept.
//
// It must not be imported by anything but tests.
package apitest
