// Package kernel fetches distribution kernels and unpacks them into a cache, without installing
// anything on the machine it runs on.
//
// [ReadMatrix] reads kernels.txt, [Fetch] brings one of its rows up to date, [Open] opens a fetched
// kernel, and [Image.Modules] returns which of its modules a machine needs.
//
// It uses Debian's own programs with a private state below the cache folder: apt verifies the
// archive's signature, the indexes and with them the packages. Each package is compared with its
// index once more before it is unpacked, because some stay in the cache for a while. The machine's
// own apt sources are only used to find the mirror. They and its package lists are not changed.
//
// Concurrency: everything that changes the cache holds its lock, across processes. Reading needs no
// lock, because an image appears complete, by a rename.
package kernel
