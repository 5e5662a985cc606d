// Package podsource reads the pods of the node from kubelet or from a file, for nodes where there
// is no API server, or where it must not be watched. Both sources deliver complete sets. A Reader
// returns kubelet's complete pods on request.
//
//	kubelet.go    polls kubelet for its pods
//	reader.go     requests complete pods from kubelet
//	asker.go      requests a page from kubelet
//	transport.go  TLS trust and the token
//	list.go       decodes kubelet's answer pod by pod, keeping only the needed fields
//	file.go       a file of pods, read again when it changes
//	manifest.go   parses such a file, and reports mistakes with their lines
//	figures.go    metrics of the sources
package podsource
