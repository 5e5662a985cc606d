// Package podsource brings the pods of the node from where there is no API server to
// watch, or where it is not to be asked: from kubelet, or from a file. Both hand over
// whole sets. A Reader has kubelet's pods whole, where somebody asks.
//
//	kubelet.go    asks kubelet for its pods, again and again
//	reader.go     asks kubelet for whole pods
//	asker.go      asks kubelet for a page
//	transport.go  whom to trust there, and the token
//	list.go       kubelet's answer, pod by pod, without keeping what is not needed
//	file.go       a file of pods, read again when it changes
//	manifest.go   what is in such a file, with the lines of mistakes
//	figures.go    what sources count, as metrics
package podsource
