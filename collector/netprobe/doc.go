// Package netprobe makes one probe over the network as kubelet does: HTTP, HTTPS, TCP or gRPC,
// without a proxy and without verifying certificates, each on a connection of its own that lingers
// for a second, with kubelet's redirects, headers and bounds.
//
// It is a leaf. Its users decide what to probe and what a failure means: package
// collector/probe/active determines verdicts, and operations (diagnose/operation) restrict the
// allowed addresses by [Probe.Connected].
//
// A [Probe] defines the probe, a [Result] its outcome: how far it got, how long each part took,
// and what the kernel knows about the connection. A probe never outlives its [Probe.Run]: when Run
// returns, its connections are closed.
//
// # DNS requests
//
// [Exchange] sends one question to one name server, by UDP or TCP. [NameServers] returns the
// servers of a host.
//
// Its users interpret the answer: an operation that looks up a name (diagnose/operation) and the
// probe of the name service (collector/probe/service).
package netprobe
