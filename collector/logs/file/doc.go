// Package file follows log files by name, across rotations.
//
// # Which file
//
// The file that the path leads to is read as it grows. When the path leads to another file, the old
// one is read to its end first. It counts as ended only once the new one has content: until its
// writer notices the rotation, it writes to the old file. Files that were rotated between two checks
// are read in turn. They are found beside the file, by names with a number or date behind or before
// the extension ([isRotated]), ordered by when they were last written.
//
// If a file is truncated, reading continues in its copy (logrotate's copytruncate): the rotated file
// with the same first bytes. Without one, that is a Loss of unknown size, and what the file holds is
// read as new: a file that keeps its first lines looks like one that was emptied and written again by
// a program that begins with the same lines. A file that was truncated and has since grown beyond the
// offset read is detected by its first kilobyte, unless it was written again with the same beginning.
//
// If a writer appends to a file after it has written to the next one, those lines are read at the
// next rotation. If the file was deleted before that, they are lost without notice.
//
// # Compressed files
//
// A rotated file named .gz is decompressed as it is read. If it has the first bytes and the size of
// a file that was read, only the additional content is read. Each file can be the origin of only one
// compressed file. The compressed file counts only once the original is gone. If its end is missing,
// the reader waits for it as long as the file grows. If it is damaged, or holds more than 4 GiB, the
// readable part is handed over, followed by a Loss of unknown size.
//
// Other compressions (.zst, .xz, .bz2 and the like) are not read. Such a file is a Loss of unknown
// size in its place, unless it has the modification time of a file that was read, as logrotate
// preserves it. It also is a Loss if the original was written between reading and compressing.
//
// # Where to begin
//
// The Position holds the device, inode, offset and a checksum of the first bytes. The reader looks
// for the file at the path and among the rotated ones, by inode and checksum, then by checksum alone
// (a copy, a compressed file; another device number after a boot). It continues there, and then with
// the files that were written later. If the file is not found, that is a Loss of unknown size, and
// the current file is read from its start. If the file was compressed before any of its lines was
// handed over, nothing identifies it, which is a Loss too.
//
// Without a position, Lookback selects by the times in the lines, in rotated and gzipped files as
// well. 0 begins at the end of the file, including an unfinished last line. A file that appears
// later is read as a whole.
//
// # Lines
//
// A line ends with "\n"; a "\r" before it is removed. The last line waits some seconds for its end,
// or until its file is finished. A line longer than 16 KiB is handed over without its end, followed
// by a Loss with the number of missing bytes. Zeros at the start of a line, which a crash or a
// truncation leaves behind, are removed. Other bytes are handed over as they are: zeros, control
// characters, invalid UTF-8.
//
// The reader detects changes by inotify, or by polling every 2 s where inotify does not work
// (network file systems).
package file
