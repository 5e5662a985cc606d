// Package netprobe makes one probe over the network as kubelet makes them: HTTP, HTTPS,
// TCP or gRPC, without a proxy, certificates not verified, each on a connection of its
// own that lingers for a second, with kubelet's redirects, headers and bounds.
//
// It is a leaf. Who probes decides what is probed and what a failure means: package
// collector/probe/active gives verdicts, operations (diagnose/operation) guard what may
// be connected to, by [Probe.Connected].
//
// A [Probe] says what to do, a [Result] how it went: how far it got, how long each part
// took, and what the kernel knows of the connection. A probe never outlives its [Probe.Run]:
// its connections are closed by then.
//
// # Questions to name servers
//
// [Exchange] asks one name server one question, by UDP or TCP, and finds which servers
// a host has.
//
// What an answer means is for those who ask, an operation that looks a name up
// (diagnose/operation) and the probe of the name service (collector/probe/service).
package netprobe
