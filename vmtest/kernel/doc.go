// Package kernel fetches distribution kernels and unpacks them into a cache,
// without installing anything on the machine that it runs on.
//
// [ReadMatrix] reads kernels.txt, [Fetch] brings one of its rows up to date,
// [Open] finds what was fetched, and [Image.Modules] reports which of its modules
// a machine needs.
//
// Debian's own programs do the work, on a private state below the cache folder:
// apt verifies the archive's signature, the indexes and with them the packages;
// every package is compared with its index once more before it is unpacked,
// because some lie in the cache for a while. The machine's own apt sources only
// name the mirror to use. They, and its package lists, stay untouched.
//
// Concurrency: all that changes the cache holds its lock, across processes.
// Reading needs no lock: an image appears, complete, by a rename.
package kernel
