// Package dnsask asks one name server one question, by UDP or TCP, and finds which servers
// a host has.
//
// It is a leaf: what an answer means is for those who ask, an operation that looks a name up
// (diagnose/operation) and the probe of the name service (collector/probe/service).
package dnsask
