// Package file follows log files by name, across rotations.
//
// # Which file
//
// The file that the path leads to is read as it grows. When that is another file than
// before, the old one is read to its end first. It counts as ended only once the new
// one has content: until its writer notices the rotation it writes to the old file.
// Files that were rotated between two looks are read in turn. They are found beside
// the file the path leads to, by names with a number or date behind or before the
// extension ([isRotated]), in the order in which they were written last.
//
// A file that is truncated is read on in the copy that was made of it
// (logrotate's copytruncate), which is the rotated file with the same first
// bytes; where there is none, that is a Loss of unknown size. A file that was
// truncated and has grown beyond where it was read is noticed by its first bytes,
// a kilobyte of them: one that is written again with the same beginning is not.
//
// What a writer appends to a file after it has written to the next one is read
// at the next rotation.
//
// # Compressed files
//
// A rotated file with .gz behind its name is unpacked as it is read. One that was
// made of a file that was read before is known by its first bytes and its size,
// each as the origin of one only; where it has more than was read, that is read.
// It counts once what it is made of is gone. Where its end is missing, it is
// waited for as long as it grows; where it is damaged, or holds more than 4 GiB,
// what can be read of it is handed over, followed by a Loss of unknown size.
//
// Other compressions (.zst, .xz, .bz2 and their like) are not read: such a file
// is a Loss of unknown size in its place, unless it has the time of a file that
// was read, as logrotate leaves it. Where that was written between the reading
// and the compressing, it is one as well.
//
// What is written to a deleted file after the reader has gone on to the next one
// is in no file any more, and is not known.
//
// # Where to begin
//
// The Position names device, inode, offset and a checksum of the first bytes. The
// file is looked for at the path and among the rotated ones, by inode and
// checksum, then by checksum alone (a copy, a compressed file; another device
// number after a boot). Reading goes on there, and then with the files that were
// written later. Where it is not found, it was deleted or compressed in another
// way: a Loss of unknown size, and the current file is read from its start. A Loss
// is reported as well where the file was compressed before a line of it was handed
// over, for nothing identifies it then; its lines come all the same.
//
// Without a position, Lookback decides by the times in the lines, in rotated
// files as well, also those that gzip compressed; 0 begins at the end of the file, with its last line if that is
// not finished. A file that comes into being later is new as a whole.
//
// # Lines
//
// A line ends with "\n"; a "\r" before it is taken off. The last line waits for
// its end for some seconds, or until its file is done with. What is longer than
// 16 KiB is handed over without its end, followed by a Loss that says how much
// is missing. Zeros at the start of a line, which a crash or a truncation leaves
// behind, are taken off. Other bytes are handed over as they are: zeros, control
// characters, invalid UTF-8.
//
// # Network file systems
//
// Changes are seen by inotify, and by a look every 2 s where there is none.
package file
