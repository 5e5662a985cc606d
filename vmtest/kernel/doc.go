// Package kernel fetches distribution kernels and unpacks them into a cache, without installing
// anything on the machine it runs on.
//
// [ReadMatrix] reads kernels.txt, [Fetch] brings one of its rows up to date, [Open] opens a fetched
// kernel, and [Image.Modules] returns which of its modules a machine needs.
//
// It uses Debian's own programs with a private state below the cache folder: apt verifies the
// archive's signature, the indexes and with them the packages. Before a package is unpacked, it is
// compared with its index again, because packages may stay in the cache for a while. The package
// reads the machine's apt sources only to find the mirror, and changes neither these nor the
// package lists.
//
// Concurrency: every change of the cache holds its lock, across processes. Reading needs no lock,
// because a complete image appears by a rename.
package kernel
